"""The trial sees every change of its files, and removes them afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from minorm.labs.sealed.victims import Victims

ACTS: dict[str, Callable[[Victims], object]] = {
    "shortened": lambda it: os.truncate(it.neighbour, 0),
    "dated": lambda it: os.utime(it.shelf, (0, 0)),
    "opened to all": lambda it: os.chmod(it.neighbour, 0o666),
    "linked": lambda it: os.link(it.shelf, it.shelf + ".linked"),
    "removed": lambda it: os.unlink(it.shelf),
    "joined": lambda it: os.mkdir(os.path.join(it.folder, "new")),
}


@pytest.mark.parametrize("act", ACTS)
def test_a_change_is_seen(act: str) -> None:
    with Victims() as victims:
        assert victims.changed == []
        ACTS[act](victims)
        assert victims.changed == ["change files of others"]
    assert not os.path.exists(victims.folder)
