"""The walk of minorm/normalization/README.md: a call enters the functions that it names, in its order."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import minorm as mn
from minorm import nn

PAGE = Path(mn.__file__).parent / "normalization" / "README.md"
ROOT = PAGE.parents[2]
STOP = re.compile(r"\[`[\w./]+`\]\((?P<link>[\w./]+)\)\s+`(?P<function>[\w.]+)`")


class Stop(NamedTuple):
    file: str  # from the root
    function: str


def walks() -> dict[str, list[tuple[Stop, list[Stop]]]]:
    """By heading: each numbered step, and what its own list names below it, in the compiled half."""
    found: dict[str, list[tuple[Stop, list[Stop]]]] = {}
    for section in re.split(r"^##+ ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        steps: list[tuple[Stop, list[Stop]]] = []
        for item in re.split(r"^(?=\d+\. |    - )", section, flags=re.MULTILINE)[1:]:
            stops = [Stop(file_of(match["link"]), match["function"]) for match in STOP.finditer(item)]
            if item.startswith(" "):
                steps[-1][1].extend(stops)
            else:
                assert len(stops) == 1, f"a step names one function: {item}"
                steps.append((stops[0], []))
        if steps:
            found[section.splitlines()[0]] = steps
    return found


def file_of(link: str) -> str:
    path = (PAGE.parent / link).resolve()
    assert path.is_file(), f"{link} is no file"
    return path.relative_to(ROOT).as_posix()


def entered(call: Callable[[], Any]) -> list[Stop]:
    """The functions of minorm and minorm_ext that a call enters."""
    found: list[Stop] = []

    def see(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(f"{ROOT}/minorm/"):
            code = frame.f_code
            found.append(Stop(Path(code.co_filename).relative_to(ROOT).as_posix(), code.co_qualname))
        elif event == "c_call" and (getattr(argument, "__module__", None) or "").startswith("minorm_ext."):
            found.append(Stop(argument.__module__.replace(".", "/") + ".pyx", argument.__name__))

    sys.setprofile(see)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def called() -> dict[str, Callable[[], Any]]:
    """Return the call that each walk follows; its shapes have come before, as in every step but the first."""
    rng = np.random.default_rng(0)
    batch_norm, layer_norm = nn.BatchNorm2d(16), nn.LayerNorm(64)
    x, z = (mn.tensor(rng.normal(size=shape).astype("f")) for shape in ((8, 16, 4, 4), (32, 64)))
    dy = mn.ones(8, 16, 4, 4)
    batch_norm(x).backward(dy)
    layer_norm(z)
    y = batch_norm(x)
    return {
        "Forward: `layer(x)`": lambda: batch_norm(x),
        "Back: `y.backward(dy)`": lambda: y.backward(dy),
        "A LayerNorm": lambda: layer_norm(z),
    }


WALKS = walks()


def test_the_page_has_these_walks() -> None:
    assert WALKS.keys() == called().keys()


@pytest.mark.parametrize("walk", WALKS)
def test_a_call_enters_what_the_page_names_in_its_order(walk: str) -> None:
    way = entered(called()[walk])
    place = 0
    for step, (stop, _) in enumerate(WALKS[walk], 1):
        assert stop in way[place:], f"{walk}, step {step}: {stop} is not entered after the step before; the way: {way}"
        place = way.index(stop, place) + 1


@pytest.mark.parametrize("walk", [walk for walk in WALKS if walk != "A LayerNorm"])
def test_no_module_of_the_way_is_left_out(walk: str) -> None:
    """Every file of the rooms that the page is about, in which a call enters something, is one of its stops."""
    rooms = ("minorm/nn/norm/", "minorm/functional/norm/", "minorm/normalization/", "minorm/kernels/cpu/norm")
    asides = {"minorm/functional/norm/activated_norms.py", "minorm/nn/norm/batch.py"}  # each hands on, and does no more
    named = {stop.file for stop, _ in WALKS[walk]}
    assert {stop.file for stop in entered(called()[walk]) if stop.file.startswith(rooms)} - asides <= named


def body(stop: Stop) -> str:
    """The text of a compiled function: from the line that names it to the next that begins a function."""
    text = (ROOT / stop.file).read_text()
    begins = r"^(?:def|cdef|static)\b"
    match = re.search(rf"{begins}[^\n]*\b(?:NAME\()?{stop.function}\)?\(", text, re.MULTILINE)
    assert match, f"{stop.file} defines no {stop.function}"
    end = re.compile(begins, re.MULTILINE).search(text, match.end())
    return text[match.start() : end.start() if end else len(text)]


@pytest.mark.parametrize("walk", WALKS)
def test_compiled_functions_are_named_by_one_that_came_before(walk: str) -> None:
    for stop, inner in WALKS[walk]:
        before = {stop: body(stop)} if inner else {}
        for one in inner:
            assert any(re.search(rf"\b{one.function}\b", text) for text in before.values()), (
                f"none of {[other.function for other in before]} leads to {one}"
            )
            before[one] = body(one)
