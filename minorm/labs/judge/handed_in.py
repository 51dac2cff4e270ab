"""Finds submissions: the files of each student in a folder, also inside .zip archives.

Students hand in whatever they have: the notebook beside the untouched Python file, a folder with Jupyter's checkpoints,
an archive. So a submission may have several files, and the judge takes the changed one (`first_look.chosen`).
"""

from __future__ import annotations

import os
import re
import stat
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath

from minorm.labs.lab import Lab
from minorm.serialization.opening import in_words, kind
from minorm.support.safe_names import quoted

ENDINGS = (".py", ".ipynb")
ARCHIVES = (".tar", ".tgz", ".gz", ".bz2", ".xz", ".7z", ".rar")
MOST_FILES = 1000  # in a student's folder or archive
MOST_CANDIDATES = 20
DEEPEST = 50  # folders nested in it
LARGEST_ARCHIVE = 256 << 20
LARGEST_UNPACKED = 64 << 20  # bytes of all files together


@dataclass(frozen=True)
class Submission:
    """The files of a student, from which the judge will choose one. If there are no files, `problem` says why.

    when  when these files were last changed, in seconds since 1970
    """

    name: str
    paths: tuple[Path, ...] = ()
    problem: str = ""
    when: float | None = None


def submissions(folder: Path, lab: Lab, scratch: Path) -> list[Submission]:
    """Make a submission of each file, folder and .zip archive in the folder; unpack archives into `scratch`.

    A file of another kind becomes a submission, too. A .csv file does not, because it may hold the grades.
    """
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise in_words(error, f"labs: cannot list the folder {quoted(str(folder))}: {error.strerror}") from error
    return [
        of(entry, lab, scratch / str(number))
        for number, entry in enumerate(entries)
        if not is_hidden(entry.name) and entry.suffix != ".csv"
    ]


def is_hidden(name: str) -> bool:
    """Return whether this is the name of a hidden file or folder, such as .ipynb_checkpoints, __MACOSX or ._lab.py."""
    return name.startswith((".", "__"))


def of(entry: Path, lab: Lab, scratch: Path) -> Submission:
    """Make a submission of one file, folder or archive."""
    mode = entry.lstat().st_mode
    if stat.S_ISDIR(mode):
        return _in_folder(entry, lab, scratch)
    if not stat.S_ISREG(mode):
        return Submission(entry.name, problem=f"{kind(mode)}; expected a regular file or a folder with one")
    if entry.suffix == ".zip":
        try:
            files = unpacked(entry, scratch)
        except ValueError as error:
            return Submission(entry.name, problem=str(error))
        return _chosen(entry.name, files, lab)
    if entry.suffix in ENDINGS:
        return Submission(entry.name, (entry,), when=entry.stat().st_mtime)
    if entry.suffix in ARCHIVES:
        return Submission(entry.name, problem="only .zip archives are read; unpack this archive into a folder")
    return Submission(entry.name, problem="expected a .py file, an .ipynb notebook, a .zip or a folder with one")


def _in_folder(folder: Path, lab: Lab, scratch: Path) -> Submission:
    """Find the files in a student's folder; links are not followed, as they may lead to another student's files."""
    files: list[Path] = []
    archives: list[Path] = []
    links, seen = 0, 0
    for path, below, names in os.walk(folder):
        below[:] = [name for name in below if not is_hidden(name)]
        seen += len(below) + len(names)
        if seen > MOST_FILES:
            return Submission(folder.name, problem=f"more than {MOST_FILES} files")
        if len(Path(path).relative_to(folder).parts) > DEEPEST:
            return Submission(folder.name, problem=f"folders nested more than {DEEPEST} deep")
        for one in (Path(path, name) for name in sorted(names) if not is_hidden(name)):
            regular = stat.S_ISREG(one.lstat().st_mode)
            links += not regular
            if regular and one.suffix in ENDINGS:
                files.append(one)
            elif regular and one.suffix == ".zip":
                archives.append(one)
    if not files:
        try:
            files = [one for number, archive in enumerate(archives) for one in unpacked(archive, scratch / str(number))]
        except ValueError as error:
            return Submission(folder.name, problem=str(error))
    return _chosen(folder.name, files, lab, f" ({links} links or pipes are left out)" if links else "")


def _chosen(name: str, files: list[Path], lab: Lab, also: str = "") -> Submission:
    """Make a submission of the files that may be the student's work. Files that are named like the lab come first."""
    if not files:
        return Submission(name, problem=f"no .py file and no .ipynb notebook{also}; expected {lab.file}.py")
    if len(files) > MOST_CANDIDATES:
        files = [path for path in files if path.stem.startswith(lab.file)]
    if not 0 < len(files) <= MOST_CANDIDATES:
        return Submission(name, problem=f"too many files could be the solution; expected one {lab.file}.py{also}")
    ordered = sorted(files, key=lambda path: (not path.stem.startswith(lab.file), path.suffix != ".py", path.name))
    return Submission(name, tuple(ordered), when=max(path.stat().st_mtime for path in files))


def unpacked(archive: Path, scratch: Path) -> list[Path]:
    """Unpack the Python files and notebooks of a .zip file into `scratch`, with the dates in the archive.

    ValueError is raised if the archive is not a .zip file, is encrypted, or is larger than a student's work can be.
    Nothing is written outside `scratch`, because only the last part of each name in the archive is used.
    """
    if archive.stat().st_size > LARGEST_ARCHIVE:
        raise ValueError(f"{archive.name} has more than {LARGEST_ARCHIVE >> 20} MB")
    try:
        with zipfile.ZipFile(archive) as opened:
            return list(_written(opened, archive.name, scratch))
    except _Refused:
        raise
    except Exception as error:  # noqa: BLE001  zlib.error, struct.error: a stranger's bytes may raise any
        raise ValueError(f"{archive.name} cannot be unpacked: {str(error) or type(error).__name__}") from None


class _Refused(ValueError):
    """Raised for a readable archive that must not be unpacked; the message names the archive."""


def _written(opened: zipfile.ZipFile, name: str, scratch: Path) -> Iterator[Path]:
    entries = [entry for entry in opened.infolist() if _is_work(entry)]
    if len(entries) > MOST_FILES:
        raise _Refused(f"{name} has more than {MOST_FILES} files")
    left = LARGEST_UNPACKED
    for number, entry in enumerate(entries):
        with opened.open(entry) as source:
            data = source.read(left + 1)
        left -= len(data)
        if left < 0:
            raise _Refused(f"{name} holds more than {LARGEST_UNPACKED >> 20} MB")
        path = scratch / str(number) / PurePosixPath(entry.filename).name
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        when = _date(entry)
        os.utime(path, (when, when))
        yield path


def _is_work(entry: zipfile.ZipInfo) -> bool:
    """Return whether the file is a regular Python file or notebook outside hidden folders."""
    parts = PurePosixPath(entry.filename).parts
    mode = entry.external_attr >> 16
    return (
        not entry.is_dir()
        and (stat.S_IFMT(mode) in (0, stat.S_IFREG))
        and bool(parts)
        and not any(is_hidden(part) for part in parts)
        and re.search(r"\.(py|ipynb)$", parts[-1]) is not None
    )


def _date(entry: zipfile.ZipInfo) -> float:
    try:
        return datetime(*entry.date_time).timestamp()
    except (ValueError, OverflowError):
        return 0.0
