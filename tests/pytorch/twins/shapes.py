"""Shapes, indices, joining and making: elements that move and are not changed."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from tests.pytorch.twins.comparing import SHAPES, Twin, array


def _scatter_reduce(dim: int, index: Any, how: str, itself: bool, lib: Any, x: Any) -> Any:
    source = x[tuple(slice(n) for n in index.shape)]
    return lib.m.scatter_reduce(x, dim, lib.tensor(index), source, how, include_self=itself)


CALLS: dict[str, list[tuple[str, Any]]] = {
    "Tensor.reshape": [
        (str(to), lambda lib, x, to=to: x.reshape(to))
        for to in ((-1,), (1, -1), (-1, 1), (5, 3), (3, 5), (0,), (0, -1), (2, -1), (30,), (1,), ())
    ],
    "Tensor.view": [(str(to), lambda lib, x, to=to: x.view(*to)) for to in ((-1,), (1, -1), (5, 3), (-1, 3))],
    "reshape": [(str(to), lambda lib, x, to=to: lib.m.reshape(x, to)) for to in ((-1,), (1, -1), (5, 3), (0,))],
    "Tensor.flatten": [
        ("()", lambda lib, x: x.flatten()),
        *[
            (f"{a}, {b}", lambda lib, x, a=a, b=b: x.flatten(a, b))
            for a, b in ((0, -1), (1, -1), (0, 1), (0, 0), (-2, -1), (1, 0), (1, 1))
        ],
    ],
    "flatten": [("1", lambda lib, x: lib.m.flatten(x, 1)), ("()", lambda lib, x: lib.m.flatten(x))],
    "Tensor.permute": [
        (str(order), lambda lib, x, order=order: x.permute(order))
        for order in ((), (0,), (1, 0), (0, 1), (2, 0, 1), (-1, 0, 1), (0, 0))
    ],
    "permute": [("(1, 0)", lambda lib, x: lib.m.permute(x, (1, 0)))],
    "Tensor.T": [("", lambda lib, x: x.T)],
    "Tensor.mT": [("", lambda lib, x: x.mT)],
    "Tensor.transpose": [
        (f"{a}, {b}", lambda lib, x, a=a, b=b: x.transpose(a, b))
        for a, b in ((0, 1), (0, 0), (-1, 0), (1, 2), (-2, -1))
    ],
    "transpose": [("0, -1", lambda lib, x: lib.m.transpose(x, 0, -1))],
    "Tensor.unsqueeze": [
        (str(d), lambda lib, x, d=d: x.unsqueeze(d)) for d in (0, 1, -1, 2, -2, 3, -4)
    ],
    "Tensor.squeeze": [
        ("()", lambda lib, x: x.squeeze()),
        *[(str(d), lambda lib, x, d=d: x.squeeze(d)) for d in (0, 1, -1, 2)],
    ],
    "Tensor.expand": [
        (str(to), lambda lib, x, to=to: x.expand(to))
        for to in ((-1,), (3, 4), (4, 3), (2, -1), (2, 4, 4), (-1, -1), (0,), (0, 4), (2, 2, 3, 5), (7,), ())
    ],
    "Tensor.repeat": [
        (str(n), lambda lib, x, n=n: x.repeat(*n))
        for n in ((2,), (2, 3), (1, 1, 2), (0,), (2, 0, 1), (2, 1, 1, 2), (1, 1))
    ],
    "Tensor.flip": [
        (str(d), lambda lib, x, d=d: x.flip(d)) for d in ((0,), (1,), (-1,), (0, 1), (0, 2), (0, 0), ())
    ],
    "Tensor.split": [
        (f"{n}, {d}", lambda lib, x, n=n, d=d: x.split(n, d))
        for n in (1, 2, 3, 7, 0, -1, [1, 2], [0, 3], [2, 3], [0], [], [1, 1, 1, 2], [5, -2])
        for d in (0, 1, -1)
    ],
    "split": [("2, 1", lambda lib, x: lib.m.split(x, 2, 1)), ("[1, 2]", lambda lib, x: lib.m.split(x, [1, 2]))],
    "Tensor.chunk": [
        (f"{n}, {d}", lambda lib, x, n=n, d=d: x.chunk(n, d)) for n in (1, 2, 3, 9, 0, -1) for d in (0, 1, -1)
    ],
    "Tensor.tensor_split": [
        (f"{n}, {d}", lambda lib, x, n=n, d=d: x.tensor_split(n, d))
        for n in (1, 2, 3, 9, 0, -1, (1, 2), (), (2, 1), (-1,), (-9, 3), (0, 9))
        for d in (0, 1, -1)
    ],
    "Tensor.unfold": [
        (f"{d}, {size}, {step}", lambda lib, x, d=d, size=size, step=step: x.unfold(d, size, step))
        for d in (0, 1, -1)
        for size, step in ((1, 1), (2, 1), (3, 2), (2, 5), (0, 1), (9, 1), (2, 0), (-1, 1))
    ],
    "Tensor.diff": [
        (f"{n}, {d}", lambda lib, x, n=n, d=d: x.diff(n, d)) for n in (1, 2, 9, -1) for d in (0, 1, -1)
    ] + [("around", lambda lib, x: x.diff(prepend=x, append=x[..., :1]))],
    "Tensor.diag_embed": [
        (f"{k}", lambda lib, x, k=k: x.diag_embed(*k))
        for k in ((), (1,), (-2,), (0, 0, 1), (1, 1, 0), (0, 0, 0), (0, -1, -2), (0, 5, 0))
    ],
    "column_stack": [("", lambda lib, x: lib.m.column_stack([x, x * 2]))],
    "masked_scatter": [
        ("", lambda lib, x: lib.m.masked_scatter(x, x > 0, x * 2)),
        ("too few", lambda lib, x: lib.m.masked_scatter(x, x == x, (x * 2)[:1])),
        ("", lambda lib, x: lib.m.masked_scatter(x, lib.tensor(np.array([True, False, True])), x)),
    ],
    "index_put": [
        (f"{i}, {accumulate}", lambda lib, x, i=i, accumulate=accumulate: lib.m.index_put(
            x, tuple(lib.tensor(np.array(part)) for part in i), x[0, 0] * 2, accumulate))
        for i in (([0, 2, 0],), ([0], [[1], [0]]), ([0, 1], [2, 2], [1, 0]), ([True, False, True],), ([9],), ([],))
        for accumulate in (False, True)
    ],
    "scatter_reduce": [
        (f"{d}, {index}, {how}, {itself}", partial(_scatter_reduce, d, np.array(index), how, itself))
        for d, index in ((0, [[0, 1], [1, 0]]), (1, [[0, 2, 2]]), (-1, [1, 1, 0]), (0, [[9]]))
        for how in ("sum", "prod", "mean", "amax", "amin", "none")
        for itself in (True, False)
    ],
    "Tensor.unbind": [(str(d), lambda lib, x, d=d: x.unbind(d)) for d in (0, 1, -1)],
    "Tensor.__getitem__": [
        (name, run)
        for name, run in {
            "0": lambda lib, x: x[0],
            "-1": lambda lib, x: x[-1],
            "1:": lambda lib, x: x[1:],
            ":-1": lambda lib, x: x[:-1],
            "::2": lambda lib, x: x[::2],
            "5:2": lambda lib, x: x[5:2],
            "...": lambda lib, x: x[...],
            "None": lambda lib, x: x[None],
            "..., 0": lambda lib, x: x[..., 0],
            "..., None": lambda lib, x: x[..., None],
            ":, 1:": lambda lib, x: x[:, 1:],
            "1, 2": lambda lib, x: x[1, 2],
            "0, ..., -1": lambda lib, x: x[0, ..., -1],
            "()": lambda lib, x: x[()],
            "integers": lambda lib, x: x[lib.tensor(np.array([0, 2, 0, -1]))],
            "no integers": lambda lib, x: x[lib.tensor(np.array([], np.int64))],
            "integers of two axes": lambda lib, x: x[lib.tensor(np.array([[0, 1], [1, 0]]))],
            "integers, integers": lambda lib, x: x[lib.tensor(np.array([0, 1, 0])), lib.tensor(np.array([2, 2, 2]))],
            ":, integers": lambda lib, x: x[:, lib.tensor(np.array([1, 0, 1]))],
            "integers, :, integers": lambda lib, x: x[lib.tensor(np.array([0, 1])), :, lib.tensor(np.array([0, 0]))],
            "mask": lambda lib, x: x[x > 0],
            "mask of rows": lambda lib, x: x[lib.tensor(np.arange(x.shape[0]) % 2 == 0)],
            "True": lambda lib, x: x[True],
            "False": lambda lib, x: x[False],
            "list": lambda lib, x: x[[0, 0]],
        }.items()
    ],
    "Tensor.gather": [
        (f"{d}, {index}", lambda lib, x, d=d, index=index: x.gather(d, lib.tensor(np.array(index, np.int64))))
        for d in (0, 1, -1)
        for index in ([0, 0], [], 0, [[0, 1], [1, 0]], [[0]], [[2, 0, 1, 1]], [[], []], [[[0], [1]]])
    ],
    "gather": [("1", lambda lib, x: lib.m.gather(x, 1, lib.tensor(np.array([[0, 1], [1, 1]]))))],
    "cat": [
        (f"{d}", lambda lib, x, d=d: lib.m.cat([x, x * 2, x], d)) for d in (0, 1, -1)
    ] + [("one", lambda lib, x: lib.m.cat([x])), ("of rows", lambda lib, x: lib.m.cat([x[:1], x, x[:0]]))],
    "stack": [(f"{d}", lambda lib, x, d=d: lib.m.stack([x, x + 1], d)) for d in (0, 1, -1, 3)],
    "pad": [
        (f"{widths}, {value}", lambda lib, x, w=widths, v=value: _pad(lib)(x, w, value=v))
        for widths in ((1, 2), (0, 0), (-1, 1), (1, 0, 0, 2), (-1, -1, 2, -1), (), (3, 3, 1, 1, 2, 0), (-9, 0), (1,))
        for value in (0.0, 1.5, float("nan"))
    ],
    "Tensor.size": [("", lambda lib, x: tuple(x.size())), *[(str(d), lambda lib, x, d=d: x.size(d)) for d in (0, -1)]],
    "Tensor.numel": [("", lambda lib, x: x.numel())],
    "Tensor.dim": [("", lambda lib, x: (x.dim(), x.ndim))],
    "Tensor.item": [("", lambda lib, x: x.item())],
    "Tensor.__float__": [("", lambda lib, x: float(x))],
    "Tensor.__bool__": [("", lambda lib, x: bool(x))],
    "Tensor.__index__": [("", lambda lib, x: operator.index(x))],
    "Tensor.shape": [("", lambda lib, x: tuple(x.shape))],
    "Tensor.tolist": [("", lambda lib, x: np.array(x.tolist()))],
    "Tensor.__len__": [("", lambda lib, x: len(x))],
    "Tensor.__iter__": [("", lambda lib, x: tuple(x))],
    "Tensor.long": [("", lambda lib, x: (x.long(), int(x[0, 0])))],
    "Tensor.__int__": [("", lambda lib, x: int(x))],
}  # fmt: skip


def _pad(lib: Any) -> Any:
    return getattr(lib.m, "pad", None) or lib.F.pad


MADE: list[tuple[str, str, Any]] = [
    *[
        ("arange", str(a), lambda lib, x, a=a: lib.m.arange(*a))
        for a in ((5,), (0,), (2, 7), (7, 2), (0, 10, 3), (5, 0, -2), (0, 1, 0.25), (2.0,), (0, 1, 0.1), (-1,))
    ],
    *[
        ("linspace", str(a), lambda lib, x, a=a: lib.m.linspace(*a))
        for a in ((0, 1, 5), (0, 1, 1), (0, 1, 0), (-1, 1, 11), (5, 2, 4), (0, 1, 3), (3, 3, 2))
    ],
    *[("eye", str(a), lambda lib, x, a=a: lib.m.eye(*a)) for a in ((3,), (0,), (2, 4), (4, 2), (1,), (0, 3))],
    *[
        (name, str(a), lambda lib, x, name=name, a=a: getattr(lib.m, name)(*a))
        for name in ("zeros", "ones")
        for a in ((3,), (2, 0), (2, 3), ((2, 3),), ([2],), (-1,), ((),))
    ],
    *[
        ("full", f"{size}, {value}", lambda lib, x, size=size, value=value: lib.m.full(size, value))
        for size in ((2, 3), (), (0,))
        for value in (0.5, float("nan"))
    ],
    *[
        ("tensor", str(data), lambda lib, x, data=data: lib.m.tensor(data))
        for data in ([1.5, 2.0], [[1, 2], [3, 4]], 3, 2.5, [], [[], []], [True, False], [1, 2.5], [float("inf")])
    ],
    *[
        (name, str(size), lambda lib, x, name=name, size=size: getattr(lib.m, name)(*size).shape)
        for name in ("rand", "randn", "empty")
        for size in ((3,), (2, 0), (2, 3))
    ],
    ("randint", "0, 1", lambda lib, x: lib.m.randint(0, 1, (2, 3))),
    ("randperm", "sorted", lambda lib, x: sorted(lib.m.randperm(5).tolist())),
    ("randperm", "0", lambda lib, x: lib.m.randperm(0)),
]  # fmt: skip


def deviates(name: str, setting: str, shape: tuple[int, ...]) -> bool:
    """May this call differ?"""
    return (
        (name == "Tensor.mT" and shape == ())
        or (name == "Tensor.__getitem__" and setting == "integers" and shape == (2, 0, 3))
        or (name == "Tensor.gather" and setting not in ("0, [[0, 1], [1, 0]]", "1, [[0, 1], [1, 0]]"))
        or (name == "scatter_reduce" and setting.endswith(("amax, False", "amin, False")))
        or (name == "cat" and setting == "1" and shape == (0,))
    )


def twins() -> Iterator[Twin]:
    """All of them."""
    for (name, calls), shape in product(CALLS.items(), SHAPES):
        inputs = {kind: array(kind, shape) for kind in ("normal", "special")}
        inputs["integers"] = array("ties", shape).astype(np.int64)
        for (setting, run), (kind, x) in product(calls, inputs.items()):
            yield Twin(name, f"{setting}, {kind} {shape}", run, (x,), deviates=deviates(name, setting, shape))
    for name, setting, run in MADE:
        yield Twin(
            name,
            setting,
            run,
            (np.array(0),),
            summed=True,
            deviates=name == "arange" and setting in ("(7, 2)", "(-1,)"),
        )
