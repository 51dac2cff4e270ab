"""A folder is removed whatever is in it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from minorm.labs.sealed import folders


def test_a_folder_that_is_too_deep_for_a_path(tmp_path: Path) -> None:
    """Each level has a file as well; some folders may not be entered, and some names are those that `remove` gives."""
    quick = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path  # thousands of folders are slow on a busy disk
    top = Path(tempfile.mkdtemp(dir=quick))
    here = os.open(top, os.O_RDONLY)
    for level in range(3000):
        os.close(os.open("file", os.O_CREAT, 0o600, dir_fd=here))
        os.mkdir("closed", 0, dir_fd=here)
        os.mkdir(str(level % 3), dir_fd=here)
        below = os.open(str(level % 3), os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    folders.remove(str(top))
    assert not top.exists()


def test_links_are_not_followed(tmp_path: Path) -> None:
    kept, gone = tmp_path / "kept", tmp_path / "gone"
    for folder in (kept, gone / "below"):
        folder.mkdir(parents=True)
    (kept / "file").write_text("text")
    kept.chmod(0o755)
    (gone / "link").symlink_to(kept)
    (gone / "below" / "link").symlink_to(kept / "file")
    folders.remove(str(gone))
    assert not gone.exists()
    assert (kept / "file").read_text() == "text"
    assert kept.stat().st_mode & 0o777 == 0o755


def test_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    folders.remove(str(tmp_path / "nothing"))
