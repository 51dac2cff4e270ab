"""Lists the pictures below a folder, and counts the files that are left out. No file is opened.

The ending of a file's name decides whether the file is a picture. Links to folders are followed. But within a class, a
folder is read only once, and a folder that contains the folder of the class is not read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from minorm.support.safe_names import printable, quoted

ENDINGS = (".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".bmp", ".dib", ".gif", ".tif", ".tiff")
FORMATS = "PNG, JPEG, WebP, BMP, GIF or TIFF"
OTHER_PICTURES = (
    ".heic", ".heif", ".avif", ".jxl", ".jp2", ".j2k", ".svg", ".psd", ".ico", ".tga", ".ppm", ".pgm", ".pbm", ".pnm",
    ".pcx", ".exr", ".hdr", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf", ".orf", ".dcm",
)  # fmt: skip
NAMED = 3  # files of each kind that a message names
HIDDEN, NO_ENDING, LINKED = "hidden", "without an ending", "links to folders that were read"
CLASS = "files beside the folders of the classes"


class LeftOut:
    """Counts the files of each kind that are left out, and keeps the first few names.

    A kind is the ending of file names (`.txt`) or a constant such as HIDDEN. `names[kind]` are paths relative to the
    folder that was read.
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.names: dict[str, list[str]] = {}

    def add(self, kind: str, path: str) -> None:
        """Count the file at `path`, which is of the kind `kind`."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        names = self.names.setdefault(kind, [])
        names.append(path)
        names.sort()
        del names[NAMED:]

    def add_file(self, path: str) -> None:
        """Count the file at `path` under the ending of its name."""
        name = os.path.basename(path)
        self.add(HIDDEN if name.startswith(".") else os.path.splitext(name)[1].lower() or NO_ENDING, path)

    def of_kinds(self, kinds: Iterable[str]) -> LeftOut:
        """Return a LeftOut with only the kinds `kinds`."""
        part = LeftOut()
        part.counts = {kind: self.counts[kind] for kind in kinds if kind in self.counts}
        part.names = {kind: self.names[kind] for kind in part.counts}
        return part

    def __str__(self) -> str:
        """Return `3 .txt (a/1.txt, a/2.txt, b/1.txt), 1 hidden (a/.DS_Store)`, or "" if nothing was left out."""
        return ", ".join(
            f"{self.counts[kind]:,} {printable(kind)} ({_some(self.names[kind], self.counts[kind])})"
            for kind in sorted(self.counts)
        )


def _some(names: Iterable[str], count: int) -> str:
    shown = list(map(printable, names))
    return ", ".join(shown) + (", ..." if count > len(shown) else "")


def pictures_by_class(root: str, left_out: LeftOut) -> dict[str, list[str]]:
    """Return a dict from each class to the paths of its pictures, relative to root.

    Raises an OSError or ValueError, which says what is wrong with the folder.
    """
    entries = folder_entries(root)
    names = [entry.name for entry in entries if is_class(entry)]
    loose = [entry.name for entry in entries if not entry.is_dir()]
    for name in loose:
        if is_picture(name):
            left_out.add(CLASS, name)
        else:
            left_out.add_file(name)
    if not names:
        pictures = sum(map(is_picture, loose))
        what = f"{pictures:,} images and no folder" if pictures else "no folders"
        raise ValueError(
            f"ImageFolder: {quoted(root)} has {what}; expected one folder for each class, with its images in it"
                         f"{_beside(left_out, 'there are' if not pictures else '')}")  # fmt: skip
    above = _folder_and_parents(root)
    found = {name: _pictures(root, name, above, left_out) for name in names}
    if not any(found.values()):
        raise ValueError(
            f"ImageFolder: there are no images below {quoted(root)}; expected {', '.join(ENDINGS)} files in one "
            f"folder for each class{_beside(left_out)}"
        )
    if empty := [name for name, files in found.items() if not files]:
        raise ValueError(f"ImageFolder: {quoted(os.path.join(root, empty[0]))} has no images: an empty class; expected "
                         f"{', '.join(ENDINGS)} files, or no such folder{_beside(left_out)}")  # fmt: skip
    return found


def pictures_below(root: str, left_out: LeftOut) -> list[str]:
    """Return the sorted paths of all pictures below a folder; raise OSError if a folder cannot be read."""
    above = _folder_and_parents(root) - {_identity(root)}
    return _pictures(root, "", above, left_out)


def _beside(left_out: LeftOut, words: str = "there are") -> str:
    return f"; {words} {left_out}" if words and left_out.counts else ""


def folder_entries(root: str) -> list[os.DirEntry[str]]:
    """Return the entries of a folder, sorted by name; raise OSError if the folder cannot be read."""
    try:
        with os.scandir(root) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"ImageFolder: there is no folder {quoted(root)}") from error
    except NotADirectoryError as error:
        raise NotADirectoryError(
            f"ImageFolder: {quoted(root)} is a file; expected a folder with one folder for each class"
        ) from error
    except OSError as error:
        raise type(error)(f"ImageFolder: cannot read {quoted(root)}: {error.strerror}") from error


def is_class(entry: os.DirEntry[str]) -> bool:
    """Return whether the entry is a folder that may be a class. Hidden folders are not classes."""
    return entry.is_dir() and not entry.name.startswith(".")


def is_picture(name: str) -> bool:
    """Return whether a file of this name is a picture."""
    return name.lower().endswith(ENDINGS) and not name.startswith(".")


def _folder_and_parents(root: str) -> set[tuple[int, int]]:
    """Return the folder and all folders that contain it.

    A link to one of these folders must not be followed, because it leads in a circle.
    """
    place, found = os.path.realpath(root), set()
    while True:
        found.add(_identity(place))
        if place == os.path.dirname(place):
            return found
        place = os.path.dirname(place)


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _pictures(root: str, name: str, above: set[tuple[int, int]], left_out: LeftOut) -> list[str]:
    """List the pictures in the folder of a class, or in root if `name` is "". Links to folders are read last."""
    found: list[str] = []
    links: list[str] = []
    waiting, read = [name], set(above)
    while waiting or links:
        below = waiting.pop() if waiting else links.pop()
        place = os.path.join(root, below)
        if (identity := _identity(place)) in read:
            left_out.add(LINKED, below)
            continue
        read.add(identity)
        for entry in folder_entries(place):
            path = f"{below}/{entry.name}" if below else entry.name
            if entry.is_dir():
                if entry.name.startswith("."):
                    left_out.add(HIDDEN, path)
                else:
                    (links if entry.is_symlink() else waiting).append(path)
            elif is_picture(entry.name):
                found.append(path)
            else:
                left_out.add_file(path)
    return sorted(found)
