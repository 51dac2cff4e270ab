"""The attempts of the trial do what they say: without walls each of them succeeds."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from minorm.labs.sealed import attack
from minorm.labs.sealed.victims import Victims

FORMS = list(attack._changes("x"))


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="calls of Linux")
@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_changing_a_file(form: str) -> None:
    with Victims() as victims:
        try:
            attack._changes(victims.neighbour)[form]()
        except OSError as error:
            if form == "mark" and error.errno == errno.EOPNOTSUPP:
                pytest.skip("this disk keeps no attributes")
            raise
        opens = form in ("write to", "edit", "add to", "mark")  # which alone changes nothing that is looked at
        assert bool(victims.changed) != (opens or form == "give away")


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="calls of Linux")
def test_each_form_of_leaving_something_behind() -> None:
    for form in attack._beside("x"):
        folder = Path(form.replace(" ", "-"))
        folder.mkdir()
        try:
            attack._beside(str(folder))[form]()
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:  # O_TMPFILE, on disks that have none
                raise


def test_filling_a_disk(tmp_path: Path) -> None:
    size, files = 1 << 20, 8
    tries = attack._shares({"share": (size, files), "counted": True, "writes": True, "runs": []})
    del tries["exchange what is printed for a file"]  # of this process
    for attempt in tries.values():
        attempt.args[0]()  # without the wrapper that takes what is missing for a hole
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == files + 8
    assert not (tmp_path / "many0").exists(), "it was written to, and has no name any more"


def test_an_attempt_that_cannot_be_made_is_no_refusal() -> None:
    attack._at_all(lambda: os.open("not-there", os.O_RDWR))
    with pytest.raises(PermissionError):
        attack._at_all(_refused)


def _refused() -> None:
    raise PermissionError


def test_a_call_that_comes_through_is_no_refusal(tmp_path: Path) -> None:
    """The kernel's answer about arguments says that nothing refused the call."""
    attack._reached("fcntl", 0, 1, 0)
    attack._command(1031)
    attack._reached("open", 0)  # no path at all: EFAULT
    with pytest.raises(OSError, match="truncate"):
        attack._called("truncate", str(tmp_path / "not-there").encode(), 0)
