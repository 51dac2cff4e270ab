"""Arrays of positions that change after forward, or at any moment: the gradient is forward's, and no address is wrong.

The memory of an array that `from_numpy` wrapped is the caller's: a buffer of labels is filled again, another thread
writes to it. So a Function indexes with its own copy, or compares each position where it uses it.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn
from minorm.functional.scatter import scatter, scatter_nd

ROOT = Path(__file__).resolve().parents[2]


class Case(NamedTuple):
    """call(x, index) reads or writes x, of `shape`, at positions below `limit` in an index of shape `places`."""

    call: Callable[[Any, Any], Any]
    shape: tuple[int, ...]
    places: tuple[int, ...]
    limit: int


def _put(x: Any, index: Any) -> Any:
    y = x * 1
    y[index] = x[0] * 2
    return y


def _put_in_place(x: Any, index: Any) -> Any:
    return (x * 1).scatter_(1, index, 0.0)


def _masked(x: Any, index: Any) -> Any:
    mask = mn.from_numpy(index.numpy().view(np.bool_)[:, :: index.array.itemsize])  # the first byte of each number
    return x[mask]


def _lengths(x: Any, index: Any) -> Any:
    mn.manual_seed(0)
    lstm = nn.LSTM(4, 3, dtype=mn.float64)
    packed = nn.utils.rnn.pack_padded_sequence(x, index + 1, enforce_sorted=False)
    return nn.utils.rnn.pad_packed_sequence(lstm(packed)[0])[0]


CASES = {
    "cross_entropy": Case(F.cross_entropy, (64, 5), (64,), 5),
    "cross_entropy, smoothed": Case(lambda x, i: F.cross_entropy(x, i, label_smoothing=0.1), (64, 5), (64,), 5),
    "cross_entropy, weighted": Case(lambda x, i: F.cross_entropy(x, i, x[0].detach() ** 2), (64, 5), (64,), 5),
    "cross_entropy of planes": Case(F.cross_entropy, (4, 5, 3, 3), (4, 3, 3), 5),
    "cross_entropy in float32": Case(lambda x, i: F.cross_entropy(x.float(), i), (64, 5), (64,), 5),
    "nll_loss": Case(F.nll_loss, (64, 5), (64,), 5),
    "multi_margin_loss": Case(F.multi_margin_loss, (64, 5), (64,), 5),
    "embedding": Case(lambda x, i: F.embedding(i, x), (9, 4), (6, 7), 9),
    "embedding by frequency": Case(lambda x, i: F.embedding(i, x, scale_grad_by_freq=True), (9, 4), (6, 7), 9),
    "embedding_bag": Case(lambda x, i: F.embedding_bag(i, x), (9, 4), (6, 7), 9),
    "gather": Case(lambda x, i: x.gather(1, i), (6, 7), (6, 3), 7),
    "take_along_dim": Case(lambda x, i: x.take_along_dim(i, 1), (6, 7), (6, 3), 7),
    "index_select": Case(lambda x, i: x.index_select(1, i), (6, 7), (5,), 7),
    "x[i]": Case(lambda x, i: x[i], (6, 7), (5, 2), 6),
    "x[:, i, None]": Case(lambda x, i: x[:, i, None], (6, 7), (5,), 7),
    "x[mask]": Case(_masked, (6, 7), (6, 7), 2),
    "x[i] = y": Case(_put, (6, 7), (5,), 6),
    "scatter": Case(lambda x, i: x.scatter(1, i, x[:, :3] * 2), (6, 7), (6, 3), 7),
    "scatter_": Case(_put_in_place, (6, 7), (6, 3), 7),
    "scatter_add": Case(lambda x, i: x.scatter_add(1, i, x[:, :3] * 2), (6, 7), (6, 3), 7),
    "scatter, largest": Case(lambda x, i: scatter(x, 1, i, x[:, :3] * 2, "max"), (6, 7), (6, 3), 7),
    "scatter, product": Case(lambda x, i: scatter(x, 1, i, x[:, :3] * 2, "mul"), (6, 7), (6, 3), 7),
    "scatter_nd": Case(lambda x, i: scatter_nd(x, i, x[0, 0] * mn.ones(5, dtype=mn.float64), "add"),
                       (7, 7), (5, 2), 7),
    "index_add": Case(lambda x, i: x.index_add(1, i, x[:, :3] * 2), (6, 7), (3,), 7),
    "index_copy": Case(lambda x, i: x.index_copy(0, i, x[:3] * 2), (6, 7), (3,), 6),
    "index_fill": Case(lambda x, i: x.index_fill(1, i, 3.0), (6, 7), (3,), 7),
    "max_unpool2d": Case(lambda x, i: F.max_unpool2d(x, i, 2), (2, 2, 3, 3), (2, 2, 3, 3), 36),
    "repeat_interleave": Case(lambda x, i: x.repeat_interleave(i, 1), (6, 7), (7,), 5),
    "one_hot": Case(lambda x, i: x * F.one_hot(i, 7).double(), (6, 7), (6,), 7),
    "bincount": Case(lambda x, i: x * i.bincount(minlength=7).double(), (6, 7), (64,), 7),
    "ctc_loss": Case(lambda x, i: F.ctc_loss(x, i, mn.tensor([9, 9]), mn.tensor([3, 3])), (9, 2, 6), (2, 3), 6),
    "ctc_loss, lengths": Case(lambda x, i: F.ctc_loss(x, mn.ones(2, 3).long(), mn.tensor([9, 9]), i), (9, 2, 6),
                              (2,), 4),
    "ctc_loss, steps": Case(lambda x, i: F.ctc_loss(x, mn.ones(2, 2).long(), i + 6, mn.tensor([2, 2])), (9, 2, 6),
                            (2,), 4),
    "a packed LSTM": Case(_lengths, (6, 3, 4), (3,), 6),
}  # fmt: skip

# Every Function whose backward indexes with something that forward kept, and what that is. Own: the caller cannot reach
# it. Otherwise the case above that shows it.
KEPT = {
    "GetItem.index": "own",  # integers and slices
    "Take.index": "x[i]",
    "SetItem.index": "x[i] = y",
    "Gather.index": "gather",
    "Scatter.places": "scatter, product",
    "CrossEntropy.classes": "cross_entropy",
    "CrossEntropy.lse": "own",
    "NLL.index": "nll_loss",
    "CTC.lengths": "ctc_loss, lengths",
    "CTC.places": "ctc_loss",
    "CTC.steps": "ctc_loss, steps",
    "GridSample.grid": "own",  # its shape alone
    "MaxPool.indices": "own",  # the user gets a copy, in int64
    "Diagonal.places": "own",
}
INDEXING = {"add_at", "add_along", "at", "bincount", "cross_entropy_grad", "max_backward", "put_along_axis", "repeat",
            "scatter", "take", "take_along_axis"}  # fmt: skip
NUMBERS = {
    "axis", "batch", "dtype", "hidden", "how", "inputs", "last", "moving", "needs", "outputs", "shape", "states",
}  # fmt: skip  # no arrays


def arrays_of(name: str) -> tuple[Any, np.ndarray]:
    """Return x, a leaf of float64, and the positions."""
    case, rng = CASES[name], np.random.default_rng(7)
    x = mn.tensor(rng.standard_normal(case.shape), requires_grad=True)
    index = rng.integers(0, case.limit, case.places)
    if name in ("index_copy", "max_unpool2d", "scatter"):  # where two positions are one, the last counts
        index = np.argsort(rng.random((*case.places[:-2], case.limit)), axis=-1)[..., : index.shape[-1]]
        index = np.resize(index, case.places)
    return x, index


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("wrong", [2**33, -(2**40), 3])
def test_positions_that_change_after_forward(name: str, wrong: int) -> None:
    gradients = []
    for change in (False, True):
        x, index = arrays_of(name)
        positions = mn.from_numpy(index)
        loss = CASES[name].call(x, positions).sum()
        if change:
            index[...] = wrong + 1000003 * np.arange(index.size).reshape(index.shape)
        loss.backward()
        gradients.append(x.grad.numpy())
    np.testing.assert_array_equal(gradients[1], gradients[0])


@pytest.mark.parametrize("name", CASES)
def test_what_is_kept_is_no_memory_of_the_callers(name: str) -> None:
    x, index = arrays_of(name)
    for node in nodes(CASES[name].call(x, mn.from_numpy(index)).creator):
        for kept, value in vars(node).items():
            for part in value if isinstance(value, (tuple, list)) else [value]:
                shared = isinstance(part, np.ndarray) and np.shares_memory(part, index)
                assert not shared, f"{type(node).__name__}.{kept} is the caller's array"


def nodes(creator: Any) -> Iterator[Any]:
    """Yield all nodes of a graph."""
    waiting, seen = [creator], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen or not hasattr(node, "edges"):
            continue
        seen.add(id(node))
        yield node
        waiting += [edge[0] for edge in node.edges or () if edge is not None]


def test_every_function_that_indexes_with_what_it_kept_is_in_the_table() -> None:
    found = {
        f"{cls.name}.{name}"
        for path in (ROOT / "minorm" / "ops").glob("*.py")
        for cls in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(cls, ast.ClassDef)
        for name in indexed_with(cls) - NUMBERS - {method.name for method in cls.body if hasattr(method, "args")}
    }
    assert found == KEPT.keys()
    assert {case for case in KEPT.values() if case != "own"} <= CASES.keys()


def indexed_with(cls: ast.ClassDef) -> set[str]:
    """The attributes of self between square brackets, and those that a function gets which indexes."""
    found = set()
    for node in ast.walk(cls):
        places: list[ast.AST] = []
        if isinstance(node, ast.Subscript):
            places = [node.slice]
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            places = list(node.args) if called in INDEXING else []
        parts = [part for place in places for part in ast.walk(place)]
        found |= {part.attr for part in parts if isinstance(part, ast.Attribute) and ast.unparse(part.value) == "self"}
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_another_thread_writes_the_positions_all_the_time(name: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MALLOC_PERTURB_": "85"}
    program = Path(__file__).with_name("racing.py")
    done = subprocess.run([sys.executable, program, name], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, f"code {done.returncode}\n{done.stderr[-2000:]}"
