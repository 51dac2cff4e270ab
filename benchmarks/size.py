"""How many lines each room has, and how many more or fewer than before.

    python -m benchmarks.size            compared with the last tag
    python -m benchmarks.size COMMIT     compared with this commit, tag or branch

A room is a folder of minorm/ or of minorm_ext/; the files beside these folders are a room each time too. Blank lines
are not counted, comments and docstrings are. All files in the checkout count, committed or not.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
PACKAGES = ("minorm", "minorm_ext")
KINDS = {".py": "Python", ".pyx": "Cython", ".pxd": "Cython", ".h": "C", ".cu": "CUDA", ".cuh": "CUDA"}
COLUMNS = [*dict.fromkeys(KINDS.values()), "all"]

Sizes = dict[str, Counter[str]]  # room -> kind -> lines, with "all" among the kinds


def counts(path: PurePosixPath) -> bool:
    return path.parts[0] in PACKAGES and path.suffix in KINDS


def room(path: PurePosixPath) -> str:
    """Return a file's room: `minorm/nn` for minorm/nn/norm/batch.py, `minorm` for minorm/config.py."""
    return "/".join(path.parts[: min(2, len(path.parts) - 1)])


def sizes(files: Iterable[tuple[PurePosixPath, bytes]]) -> Sizes:
    """Count the lines that are not blank, in every room."""
    found: Sizes = {}
    for path, text in files:
        lines = sum(1 for line in text.splitlines() if line.strip())
        found.setdefault(room(path), Counter()).update({KINDS[path.suffix]: lines, "all": lines})
    return found


def here(root: Path = ROOT) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Yield the files of the checkout that count."""
    for package in PACKAGES:
        for file in (root / package).rglob("*.*"):
            path = PurePosixPath(file.relative_to(root).as_posix())
            if counts(path) and file.is_file():
                yield path, file.read_bytes()


def git(*arguments: str, root: Path = ROOT) -> bytes | None:
    """Return git's output for the checkout; None if git fails or is not installed."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None


def commit_of(name: str, root: Path = ROOT) -> str | None:
    """Return the hash of the commit that a tag, a branch or a part of a hash names; None if there is no such commit."""
    found = git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", root=root)
    return None if found is None else found.decode().strip()


def there(commit: str, root: Path = ROOT) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Yield the files that count at a commit, given by its hash."""
    with tarfile.open(fileobj=io.BytesIO(git("archive", commit, root=root) or b"")) as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            if counts(path) and (file := archive.extractfile(member)):
                yield path, file.read()


def change(before: Sizes, now: Sizes) -> Sizes:
    """Return how many lines each room gained (below 0: lost); rooms without a change are left out."""
    found: Sizes = {}
    for name in before.keys() | now.keys():
        more = Counter(now.get(name, Counter()))
        more.subtract(before.get(name, Counter()))
        if any(more.values()):
            found[name] = more
    return found


def table(rooms: Sizes, form: str = "d") -> str:
    """Return one line for each room and one for the total; `form` is "+d" for differences."""
    total: Counter[str] = Counter()
    for numbers in rooms.values():
        total.update(numbers)
    rows = [("room", COLUMNS)]
    for name, numbers in [*sorted(rooms.items()), ("all", total)]:
        rows.append((name, [format(numbers[kind], form) if numbers[kind] else "" for kind in COLUMNS]))
    return "\n".join(f"{name:<24}{''.join(f'{cell:>9}' for cell in cells)}".rstrip() for name, cells in rows)


def compared(now: Sizes, name: str | None, root: Path = ROOT) -> str:
    """Describe the change since a commit, or since the last tag."""
    if name is None:
        tag = git("describe", "--tags", "--abbrev=0", root=root)
        if tag is None:
            return "There is no tag to compare with. `python -m benchmarks.size COMMIT` compares with a commit."
        name = tag.decode().strip()
    commit = commit_of(name, root)
    if commit is None:
        raise ValueError(f"COMMIT={name!r} is no commit of {root}; expected a tag, a branch or a hash")
    changed = change(sizes(there(commit, root)), now)
    if not changed:
        return f"No room has more or fewer lines than at {name}."
    return f"More or fewer lines than at {name}, in rooms where they differ:\n\n{table(changed, '+d')}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.size", description="How many lines each room has.")
    parser.add_argument("commit", nargs="?", help="what to compare with: a tag, a branch or a hash; else the last tag")
    name = parser.parse_args().commit
    now = sizes(here())
    try:
        changed = compared(now, name)
    except ValueError as error:
        parser.error(str(error))
    print(f"Lines that are not blank, comments and docstrings among them:\n\n{table(now)}\n\n{changed}")


if __name__ == "__main__":
    main()
