"""Opening a regular file, and the words for everything else: at once, with the file's name and the system's errno."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from minorm.serialization.opening import Irregular, contents, regular


def test_a_regular_file_and_a_link_to_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    (tmp_path / "link").symlink_to("a")
    for path in (tmp_path / "a", str(tmp_path / "a"), tmp_path / "link"):
        with regular(path, "read") as file:
            assert file.read() == b"content"
    with pytest.raises(Irregular, match=r"^read: '.*link' is a link; expected a regular file$"):
        regular(tmp_path / "link", "read", follow=False)


@pytest.mark.parametrize("size", [0, 1, 5000, 200_000])
def test_contents_are_all_bytes_also_of_a_file_that_comes_in_parts_or_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    path, whole, read = tmp_path / "a", os.urandom(size), os.read
    path.write_bytes(whole)
    assert contents(path, "read") == whole
    monkeypatch.setattr(os, "read", lambda descriptor, count: read(descriptor, min(count, 30_000)))
    assert contents(path, "read") == whole

    def grown(descriptor: int, count: int) -> bytes:
        if path.stat().st_size == size:
            with path.open("ab") as file:
                file.write(b"more")
        return read(descriptor, count)

    monkeypatch.setattr(os, "read", grown)
    assert contents(path, "read") == whole + b"more"
    monkeypatch.undo()
    with pytest.raises(Irregular, match=f"^read: '{tmp_path}' is a folder; expected a regular file$"):
        contents(tmp_path, "read")


def test_a_disk_that_fails_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    (tmp_path / "a").write_bytes(b"content")
    monkeypatch.setattr(os, "read", fail)
    with pytest.raises(OSError, match=r"^read: cannot read '.*a': Input/output error$") as caught:
        contents(tmp_path / "a", "read")
    assert caught.value.errno == errno.EIO


def irregular(tmp_path: Path, kind: str) -> Path:
    path = tmp_path / kind
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(os.path.relpath(path))  # a socket's name is short
    elif kind == "folder":
        path.mkdir()
    else:
        return Path("/dev/zero")
    return path


@pytest.mark.timeout(10)
@pytest.mark.parametrize("kind", ["pipe", "socket", "folder", "device"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.chdir(tmp_path)
    path = irregular(tmp_path, kind)
    before = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
    with pytest.raises(Irregular, match=f"^read: '{path}' is a {kind}; expected a regular file$"):
        regular(path, "read")
    assert not before or len(os.listdir("/proc/self/fd")) == len(before)


@pytest.mark.timeout(10)
def test_a_name_swapped_for_a_pipe_is_seen_when_it_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the opening; the pipe is neither waited for nor read."""
    (tmp_path / "a").write_bytes(b"content")
    look = os.stat

    def swap(path: Any, **options: Any) -> os.stat_result:
        status = look(path, **options)
        os.unlink(path)
        os.mkfifo(path)
        return status

    monkeypatch.setattr(os, "stat", swap)
    with pytest.raises(Irregular, match="is a pipe; expected a regular file"):
        regular(tmp_path / "a", "read")


def test_a_missing_file_is_said_in_words(tmp_path: Path) -> None:
    for path in (tmp_path / "no", tmp_path / "no" / "no"):
        with pytest.raises(FileNotFoundError, match=f"^read: there is no file '{path}'$") as caught:
            regular(path, "read")
        assert caught.value.errno == errno.ENOENT


def test_links_in_a_ring_and_a_file_as_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match=r"^read: cannot read '.*a': Too many levels of symbolic links$"):
        regular(tmp_path / "a", "read")
    (tmp_path / "c").write_bytes(b"")
    with pytest.raises(NotADirectoryError, match=r"^read: cannot read '.*c/d': Not a directory$"):
        regular(tmp_path / "c" / "d", "read")


def test_permission_denied_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"secret")
    path.chmod(0)
    if os.geteuid() == 0:  # whom nothing is denied

        def deny(name: Any, *_: Any) -> int:
            raise PermissionError(errno.EACCES, "Permission denied", os.fspath(name))

        monkeypatch.setattr(os, "open", deny)
    with pytest.raises(PermissionError, match=f"^read: cannot read '{path}': Permission denied$") as caught:
        regular(path, "read")
    assert caught.value.errno == errno.EACCES
