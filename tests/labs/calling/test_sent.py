"""A right function is sent as its own source only; the judge learns that it was called."""

from __future__ import annotations

import builtins
import dis
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from minorm.labs import catalogue
from minorm.labs.beside import Beside
from minorm.labs.calling.sent import Sent, Told
from minorm.labs.remote import Remote

SENT = [
    (number, task, name, right)
    for number in catalogue.numbers()
    for task, functions in catalogue.find(number).provided.items()
    for name, right in functions.items()
    if isinstance(right, Sent)
]


RIGHT = """\
import math

SECRET = "of another task"

def halved(model):
    return math.ldexp(model["weight"], -1)
"""


@pytest.fixture
def halved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function in a separate module, with an import and something else."""
    (tmp_path / "halving.py").write_text(RIGHT)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("halving").halved
    del sys.modules["halving"]


@pytest.mark.parametrize(("number", "task", "name", "right"), SENT)
def test_the_source_says_one_function_and_needs_no_other(number: int, task: str, name: str, right: Sent) -> None:
    """Of the others in its module a process may still be asked to write its own."""
    names: dict[str, Any] = {}
    exec(right.source, names)
    assert callable(names[name])
    others = {other for _, _, other, _ in SENT} - {name}
    assert not others & names.keys()
    assert right.source.count("def ") == 1
    assert set(global_names(getattr(names[name], "func", names[name]))) <= names.keys() | vars(builtins).keys()


def test_options_go_with_it(halved: Any) -> None:
    def scaled(model: Any, factor: float = 1.0) -> Any:
        return factor * model

    right = Sent(scaled, lambda: {"factor": 3.0})
    assert right(2.0) == 6.0
    assert right(2.0, factor=5.0) == 10.0
    told = Told("halved", Sent(halved).source, lambda: None)
    assert told({"weight": 4.0}) == 2.0
    for lab, name in ((5, "recalibrate"), (10, "attributes")):
        found = catalogue.find(lab)
        (sent,) = [functions[name] for functions in found.provided.values() if name in functions]
        assert isinstance(sent, Sent)
        with found.variants.using(found.variants.of(2027)):
            told = Told(name, sent.source, lambda: None)
            keywords = told._function.keywords
        assert keywords
        assert all(value in [found.variants.value(row, found.variants.of(2027)) for row in found.variants.rows]
                   for value in keywords.values())  # fmt: skip


def global_names(function: Any) -> list[str]:
    """Return the global names that it reads."""
    return [one.argval for one in dis.get_instructions(function) if one.opname == "LOAD_GLOBAL"]


def test_there_are_some_in_each_lab_with_models() -> None:
    assert {number for number, *_ in SENT} == {5, 10, 12, 14}


def test_whoever_calls_it_is_heard(halved: Any) -> None:
    assert Sent(halved).source == RIGHT.replace('\nSECRET = "of another task"\n\n', "")
    heard: list[str] = []
    told = Told("halved", Sent(halved).source, lambda: heard.append("halved"))
    assert told({"weight": 3.0}) == 1.5
    assert heard == ["halved"]


TEXT = """\
def halved(model):
    return 0

class Model(dict):
    pass

def whole(weight):
    return 2 * halved(Model(weight=weight))

def text():
    return "mine"

def shown():
    return text()
"""


def test_in_a_students_process(halved: Any) -> None:
    """The student's process builds its own objects, so the function must run there too; text for the judge stays
    here."""
    used: list[str] = []
    with Remote(TEXT, "mine.py", Beside("minorm.labs.beside.lab00_axes"), 1 << 31) as remote:
        remote.allow(30)
        assert remote.whole(5.0) == 0
        remote.replace({"halved": Sent(halved), "text": lambda: "ours"}, used.append)
        remote.allow(30)
        assert remote.whole(5.0) == 5.0
        assert used == ["halved"]
        assert remote.text() == "ours"
        assert remote.shown() == "ours"
        assert used == ["halved", "text", "text"]
        remote.replace({}, used.append)
        remote.allow(30)
        assert remote.whole(5.0) == 0
        assert remote.text() == "mine"
