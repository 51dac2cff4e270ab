"""Finds copies of hidden files by their contents; the names of the copies do not matter.

Python keeps compiled forms of imported files, editors keep backups, and notebooks keep checkpoints. Another Python on
this machine may have its own minorm. All these files reveal the source. A text is a copy if it shares several lines
with a hidden source. A compiled file counts as a copy unless its source exists, is not hidden, and has not changed
since it was compiled.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import importlib.util
import os
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from minorm.labs.sealed import walls

SHORTEST = 25  # characters of a line that tells something
LARGEST = 16 << 20  # bytes of a file in an archive that is looked at
SHARED = 6  # a file with fewer of these lines has them by chance; today's files have at most 4
_BREAKS, _DECORATION = re.compile(rb"(?:\\[nrt]|[\n\r\0])+"), b" \t\",'"  # as a text has them, and as JSON has
_COMPILED, _LIBRARIES = (".pyc", ".pyo"), (".so", ".pyd", ".dylib")


def found() -> tuple[str, ...]:
    """Return the paths of copies of hidden files that a student's code could read.

    Files that have not changed since the last call are not read again.
    """
    packages = [walls.PACKAGE, *_other_packages()]
    hidden = {package: _hidden(package) for package in packages}
    sources = sorted({path for roots in hidden.values() for root in roots for path in _sources(root)})
    telling = _telling(tuple((path, _state(path)) for path in sources))
    copies = [str(root) for package in packages[1:] for root in hidden[package]]
    for package in packages:
        files = _files(package, hidden[package])
        copies += [str(path) for path in files if _is_copy(path, set(sources), telling)]
    return tuple(sorted([*copies, *_archives()]))


def _hidden(package: Path) -> list[Path]:
    """Return the paths in this copy of minorm that correspond to the hidden paths of the running minorm."""
    return [package / path.relative_to(walls.PACKAGE) for path in walls.HIDDEN]


def _sources(root: Path) -> list[Path]:
    return sorted(root.rglob("*.py")) if root.is_dir() else [root] if root.is_file() else []


def _files(folder: Path, hidden: list[Path]) -> Iterator[Path]:
    """Yield all files below the folder, without files that are hidden anyway."""
    for path, folders, names in os.walk(folder):
        here = Path(path)
        folders[:] = [name for name in folders if here / name not in hidden]
        yield from (one for one in map(here.joinpath, names) if one not in hidden and one.is_file())


def _state(path: Path) -> tuple[int, int]:
    """Return size and time of a file, which change when its contents change."""
    there = path.stat()
    return there.st_mtime_ns, there.st_size


def _is_copy(path: Path, sources: set[Path], telling: frozenset[bytes]) -> bool:
    """Return whether the file was made from a hidden source."""
    if path.suffix in _COMPILED:
        return not _is_known(path, sources)
    try:
        return path.suffix not in _LIBRARIES and _shares(path, _state(path), telling)
    except FileNotFoundError:  # it existed for a moment, as files do that Python is about to rename
        return False


@functools.cache
def _telling(sources: tuple[tuple[Path, tuple[int, int]], ...]) -> frozenset[bytes]:
    """Return the lines of the hidden sources."""
    return frozenset[bytes]().union(*(_lines(path.read_bytes()) for path, _ in sources))


@functools.cache
def _shares(path: Path, _: tuple[int, int], telling: frozenset[bytes]) -> bool:
    """Return whether the file at `path` shares at least SHARED lines with the hidden sources.

    If the file is an archive, one of the files in it has to share these lines.
    """
    return any(len(_lines(text) & telling) >= SHARED for text in _texts(path))


def _texts(path: Path) -> Iterator[bytes]:
    """Yield the contents of a file, or of each file of an archive."""
    if not zipfile.is_zipfile(path):
        yield path.read_bytes()
        return
    with contextlib.suppress(zipfile.BadZipFile, NotImplementedError, RuntimeError), zipfile.ZipFile(path) as archive:
        yield from (archive.read(one) for one in archive.infolist() if one.file_size <= LARGEST)


def _is_known(compiled: Path, hidden: set[Path]) -> bool:
    """Return whether a compiled file has a source that exists, is not hidden, and has not changed since."""
    try:
        source = Path(importlib.util.source_from_cache(str(compiled)))
        with open(compiled, "rb") as file:
            head = file.read(16)
        flags, made_of = int.from_bytes(head[4:8], "little"), head[8:16]
        if source in hidden:
            return False
        if flags & 1:
            return importlib.util.source_hash(source.read_bytes()) == made_of
        there = source.stat()
        size, time = there.st_size & 0xFFFFFFFF, int(there.st_mtime) & 0xFFFFFFFF
        return made_of == time.to_bytes(4, "little") + size.to_bytes(4, "little")
    except (ValueError, OSError):  # a name that no cache has, or no source
        return False


def _lines(data: bytes) -> set[bytes]:
    """Return the lines that are long enough to identify a file, without import lines.

    Characters that a notebook adds around a line are removed.
    """
    lines = (line.strip(_DECORATION) for line in _BREAKS.split(data))
    return {line for line in lines if len(line) >= SHORTEST and not line.startswith((b"import ", b"from "))}


def _sites() -> set[str]:
    """Return the package folders that a student's code can read, including those of other Pythons."""
    roots = [os.path.join(sys.base_prefix, "lib"), "/usr/lib", "/usr/local/lib"]
    others = [path for root in roots for path in glob.glob(f"{root}/python3*/*-packages")]
    return {os.path.realpath(path) for path in [*walls.import_path(), *others]}


def _other_packages() -> list[Path]:
    """Return the folders of other copies of minorm, which were installed separately or are in an egg."""
    there = {Path(os.path.realpath(path)) for site in _sites() for path in glob.glob(f"{site}/minorm*/")}
    there |= {path / "minorm" for path in there}
    return sorted(path for path in there if (path / "labs" / "checks").is_dir() and path != walls.PACKAGE)


def _archives() -> list[str]:
    """Return the wheels and eggs of minorm that are single files."""
    named = [path for site in _sites() for path in glob.glob(f"{site}/minorm*")]
    return [path for path in named if os.path.isfile(path) and zipfile.is_zipfile(path)]
