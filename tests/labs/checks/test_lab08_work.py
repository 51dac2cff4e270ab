"""Lab 8 counts the work of each CUDA thread: honest kernels of many kinds earn full marks, and cheats are named."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from minorm.labs.beside import lab08_cuda as beside
from minorm.labs.checks import lab08_cuda as lab
from minorm.labs.checks.right import lab08_cuda as ours
from minorm.labs.comparing import Wrong
from minorm.labs.cuda import Program, without_barrier
from minorm.labs.lab import Check
from tests.labs.checks.lab08_kernels import (
    FALSE_NORMALIZES,
    FALSE_ROWS,
    FALSE_SHUFFLES,
    FALSE_TREES,
    NORMALIZES,
    ROWS,
    SHUFFLES,
    TREES,
)

Run = Callable[..., None]
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")

NAMES = re.compile(r"\b(block_sum|warp_sum|each|twice|normalize|moments)\b")


class Numbered:
    """One of many kernels of these names in a program: its names end in a number."""

    def __init__(self, program: Program, number: int) -> None:
        self.program, self.number = program, number

    def launch(self, name: str, *args: Any, **options: Any) -> int:
        return self.program.launch(f"{name}_{self.number}", *args, **options)

    @property
    def work(self) -> Any:
        return self.program.work

    @property
    def race(self) -> str:
        return self.program.race


def texts() -> list[tuple[str, ...]]:
    """All pieces that the checks compile together, those without one of their barriers too."""
    found: list[tuple[str, ...]] = [(text,) for text in NORMALIZES.values()]
    found += [(text,) for text, _ in FALSE_NORMALIZES.values()]
    sums = [*TREES.values(), *SHUFFLES.values()]
    found += [(without_barrier(text, i), lab.HARNESS) for text in sums for i in range(text.count(lab.BARRIER))]
    sums += [text for text, _ in (*FALSE_TREES.values(), *FALSE_SHUFFLES.values())]
    found += [(text, lab.HARNESS) for text in sums]
    rows = [*ROWS.values(), *(text for text, _ in FALSE_ROWS.values())]
    return found + [(ours.SHUFFLES, text) for text in rows]


@pytest.fixture(scope="module")
def compiled() -> dict[tuple[str, ...], Numbered]:
    """All of them, as two programs: where there are shuffles, warps rest now and then, and that takes long."""
    found = {}
    for shuffled in (False, True):
        pieces = [piece for piece in texts() if shuffled == ("__shfl" in "".join(piece))]
        program = Program(*(NAMES.sub(rf"\1_{i}", "\n".join(piece)) for i, piece in enumerate(pieces)))
        found.update({piece: Numbered(program, i) for i, piece in enumerate(pieces)})
    return found


@pytest.fixture
def run(compiled: dict[tuple[str, ...], Numbered]) -> Callable[..., None]:
    """Run the checks with these titles for a student who has handed in these pieces."""

    def native(kind: str, pieces: tuple[str, ...], function: str, **options: Any) -> Any:
        return getattr(beside, function)(compiled[pieces], **options)

    def asked(titles: tuple[str, ...], **pieces: str) -> None:
        student: Any = SimpleNamespace(native=native, **{name: lambda text=text: text for name, text in pieces.items()})
        for item in lab.LAB.items:
            if isinstance(item, Check) and item.title in titles:
                item.ask(student, np.random.default_rng(0))

    return asked


ROW = ("a block for each row", "rows that are no multiple of the block")
IS_TREE = ("every thread has the sum", "twice in a row, the same bits in any order", "blocks of 1 to 1024 threads",
           "no barrier too many", "a tree, its work spread over the threads", "few roundings")  # fmt: skip
IS_SHUFFLED = ("every thread has the sum, by shuffles", "twice in a row, with warps that fall behind",
               "two barriers and no more", "shuffles carry the numbers", "any number of warps")  # fmt: skip
IS_SHARED = ("k, d and var", "any offset, any shape", "the same bits in any order",
             "a row shared among the threads")  # fmt: skip


@pytest.mark.parametrize("name", NORMALIZES)
def test_other_ways_to_normalize(run: Run, name: str) -> None:
    run(ROW, normalize_cu=NORMALIZES[name])


@pytest.mark.parametrize("name", FALSE_NORMALIZES)
def test_cheats_at_normalizing(run: Run, name: str) -> None:
    text, said = FALSE_NORMALIZES[name]
    with pytest.raises(Wrong, match=said):
        run(ROW[:1], normalize_cu=text)


@pytest.mark.parametrize("name", TREES)
def test_other_trees(run: Run, name: str) -> None:
    run(IS_TREE, tree_cu=TREES[name])


@pytest.mark.parametrize("name", FALSE_TREES)
def test_cheats_at_a_tree(run: Run, name: str) -> None:
    text, said = FALSE_TREES[name]
    with pytest.raises(Wrong, match=said):
        run(IS_TREE[4:5], tree_cu=text)


@pytest.mark.parametrize("name", SHUFFLES)
def test_other_shuffles(run: Run, name: str) -> None:
    run(IS_SHUFFLED, shuffle_cu=SHUFFLES[name])


@pytest.mark.parametrize("name", FALSE_SHUFFLES)
def test_cheats_at_shuffles(run: Run, name: str) -> None:
    text, said = FALSE_SHUFFLES[name]
    with pytest.raises(Wrong, match=said):
        run(IS_SHUFFLED[3:4], shuffle_cu=text)


@pytest.mark.parametrize("name", ROWS)
def test_other_moments(run: Run, name: str) -> None:
    run(IS_SHARED, shuffle_cu=ours.SHUFFLES, moments_cu=ROWS[name])


@pytest.mark.parametrize("name", FALSE_ROWS)
def test_cheats_at_moments(run: Run, name: str) -> None:
    text, said = FALSE_ROWS[name]
    with pytest.raises(Wrong, match=said):
        run(IS_SHARED[3:], shuffle_cu=ours.SHUFFLES, moments_cu=text)


def test_a_comment_may_speak_of_double() -> None:
    student: Any = SimpleNamespace(tree_cu=lambda: "// no double here\n/* nor\ndouble */ float x;")
    assert lab._text(student, "tree_cu").startswith("// no double")
