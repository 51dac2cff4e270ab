"""Arithmetic, comparisons, functions and activations, element by element; operands that broadcast."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from tests.pytorch.twins.comparing import KINDS, SHAPES, Twin, array

INFINITY, NAN = float("inf"), float("nan")
NANS = ("special", "one NaN")  # the kinds that have one


def method(name: str, lib: Any, x: Any, *args: Any, **options: Any) -> Any:
    """x.name(...)"""
    return getattr(x, name)(*args, **options)


def function(name: str, lib: Any, *args: Any, **options: Any) -> Any:
    """mn.name(...), torch.name(...)"""
    return getattr(lib.m, name)(*args, **options)


def functional(name: str, lib: Any, *args: Any, **options: Any) -> Any:
    """F.name(...)"""
    return getattr(lib.F, name)(*args, **options)


def operation(name: str, lib: Any, *args: Any) -> Any:
    """The operator: operator.name(...)"""
    return getattr(operator, name)(*args)


def turned(name: str, n: float, lib: Any, x: Any) -> Any:
    """A number first: n + x"""
    return getattr(operator, name)(n, x)


def second(name: str, n: float, lib: Any, x: Any) -> Any:
    """A number second: x + n"""
    return getattr(operator, name)(x, n)


Calls = list[tuple[str, str, Callable[..., Any]]]

ONE: Calls = [
    *[(f"Tensor.__{n}__", "", partial(operation, n)) for n in ("neg", "abs")],
    *[
        (f"Tensor.{n}", "", partial(method, n))
        for n in (
            "abs", "exp", "log", "sqrt", "sin", "cos", "clone", "contiguous", "double", "detach", "float", "half",
            "cpu", "erfinv",
        )
    ],
    *[
        (n, "", partial(function, n))
        for n in ("abs", "exp", "log", "sqrt", "sin", "cos", "zeros_like", "ones_like", "tensor", "as_tensor")
    ],
    *[
        (f"F.{n}", "", partial(functional, n))
        for n in (
            "relu", "relu6", "leaky_relu", "elu", "gelu", "silu", "sigmoid", "tanh", "hardswish", "hardsigmoid",
            "softplus",
        )
    ],
    ("Tensor.to", "", lambda lib, x: x.to(lib.m.float32)),
    ("Tensor.numpy", "", lambda lib, x: x.numpy()),
    ("from_numpy", "", lambda lib, x: lib.m.from_numpy(np.array(x.detach().numpy()))),
    ("from_dlpack", "", lambda lib, x: lib.m.from_dlpack(np.array(x.detach().numpy()))),
]  # fmt: skip

BOUNDS = (
    (-1, 1), (0, None), (None, 0.5), (1, -1), (-INFINITY, INFINITY), (2, 2), (None, None), (NAN, None), (None, NAN),
    (0.0, NAN),
)  # fmt: skip

OPTIONS: Calls = [
    *[("Tensor.pow", f"{p}", partial(method, "pow", exponent=p)) for p in (0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.5, 0.0)],
    *[("Tensor.__rpow__", f"{b} **", partial(turned, "pow", b)) for b in (0, 1, 2, -1, 0.5, INFINITY)],
    *[("Tensor.clamp", f"{a}", lambda lib, x, a=a: x.clamp(*a)) for a in BOUNDS],
    *[("Tensor.clip", f"{a}", lambda lib, x, a=a: x.clip(min=a[0], max=a[1])) for a in BOUNDS],
    *[("clamp", f"{a}", lambda lib, x, a=a: lib.m.clamp(x, *a)) for a in BOUNDS],
    *[("clip", f"{a}", lambda lib, x, a=a: lib.m.clip(x, *a)) for a in BOUNDS],
    *[("F.leaky_relu", f"{s}", partial(functional, "leaky_relu", negative_slope=s)) for s in (0.0, 0.2, -1.0, 2.0)],
    *[("F.elu", f"{a}", partial(functional, "elu", alpha=a)) for a in (0.0, 0.5, -1.0)],
    ("F.gelu", "tanh", partial(functional, "gelu", approximate="tanh")),
    *[
        ("F.softplus", f"{b}, {t}", partial(functional, "softplus", beta=b, threshold=t))
        for b, t in ((2.0, 20.0), (0.5, 1.0), (1.0, 0.0))
    ],
    *[
        (f"Tensor.__{n}__", f"{v}", partial(second, n, v))
        for n in ("add", "sub", "mul", "truediv")
        for v in (2, 0, -0.0, -1.5, INFINITY, NAN, 1e300)
    ],
    *[
        (f"Tensor.__r{n}__", f"{v}", partial(turned, n, v))
        for n in ("add", "sub", "mul", "truediv")
        for v in (2, 0, -0.0, -1.5, INFINITY, NAN, 1e300)
    ],
    *[
        (f"Tensor.__{n}__", f"{v}", partial(second, n, v))
        for n in ("lt", "le", "gt", "ge", "eq", "ne")
        for v in (0, 1.0, INFINITY, NAN)
    ],
    *[  # of 0, not of -0, whose slope has another sign in PyTorch at some places in memory
        ("Tensor.logit", f"{eps}", lambda lib, x, eps=eps: (x + 0).logit(eps)) for eps in (None, 0.0, 0.1, 0.5)
    ],
    *[("xlogy", f"{v}", lambda lib, x, v=v: lib.m.xlogy(x, v)) for v in (0, 2, 0.0, -1.0, INFINITY)],
    *[("xlogy", f"{v} first", lambda lib, x, v=v: lib.m.xlogy(v, x)) for v in (0.0, 2.0, INFINITY, NAN)],
    *[("full_like", f"{v}", lambda lib, x, v=v: lib.m.full_like(x, v)) for v in (0, 1.5, NAN)],
    *[
        ("F.dropout", f"{p}, {t}", partial(functional, "dropout", p=p, training=t))
        for p, t in ((0.5, False), (0.0, True), (1.0, True))
    ],
]

TWO: Calls = [
    *[
        (f"Tensor.__{n}__", "", partial(operation, n))
        for n in ("add", "sub", "mul", "truediv", "pow", "lt", "le", "gt", "ge", "eq", "ne")
    ],
    ("maximum", "", partial(function, "maximum")),
    ("minimum", "", partial(function, "minimum")),
    ("where", "", lambda lib, a, b: lib.m.where(a > 0, a, b)),
    *[(f"Tensor.{n}", "", partial(method, n)) for n in ("atan2", "logaddexp", "xlogy")],
    ("isin", "", partial(function, "isin")),
    ("isin", "", partial(function, "isin", invert=True)),
    ("searchsorted", "", lambda lib, a, b: lib.m.searchsorted(b.nan_to_num().sort(-1).values, a)),
    ("searchsorted", "", lambda lib, a, b: lib.m.searchsorted(b.nan_to_num().sort(-1).values, a, side="right")),
    ("bucketize", "", lambda lib, a, b: lib.m.bucketize(a, b.nan_to_num().sort(-1).values, right=True)),
]

PAIRS = (
    ((), ()), ((7,), (7,)), ((3, 5), (3, 5)), ((3, 5), (5,)), ((3, 1), (1, 5)), ((3, 5), ()), ((), (4,)),
    ((0, 5), (5,)),
    ((0,), (0,)), ((0,), (1,)), ((2, 3, 5), (3, 1)), ((2, 3), (4,)), ((1,), (7,)), ((33,), (33,)),
)  # fmt: skip


def deviates(name: str, setting: str, kind: str) -> bool:
    """May this call differ?"""
    return (
        (name in ("F.relu6", "F.elu", "F.hardswish") and kind in NANS)
        or name in ("F.hardsigmoid", "Tensor.numpy")
        or (name == "F.gelu" and setting == "tanh" and kind in ("special", "huge"))
        or (name == "Tensor.__rtruediv__" and kind in ("special", "tiny", "huge"))
    )


def twins() -> Iterator[Twin]:
    """All of them."""
    for calls, shapes in ((ONE, SHAPES), (OPTIONS, ((), (7,), (0,), (3, 5)))):
        for (name, setting, run), kind, shape in product(calls, KINDS, shapes):
            what = f"{setting}, {kind} {shape}"
            yield Twin(name, what, run, (array(kind, shape),), deviates=deviates(name, setting, kind))
    for (name, _, run), kind, (first, other) in product(TWO, KINDS, PAIRS):
        for more in (kind, "special"):
            pair = array(kind, first, 0), array(more, other, 1)
            yield Twin(name, f"{kind} {first} and {more} {other}", run, pair, summed=first != other)
    rng = np.random.default_rng(0)
    for name, (first, other) in product(("add", "sub", "mul", "truediv", "lt", "eq", "pow"), PAIRS[:6]):
        a, b = np.array(rng.integers(-3, 4, first)), np.array(rng.integers(0, 4, other))
        run = partial(operation, name)
        yield Twin(f"Tensor.__{name}__", f"integers {first} and {other}", run, (a, b))
        yield Twin(f"Tensor.__{name}__", f"integers {first}, floats {other}", run, (a, array("normal", other)))
    for name in ("neg", "abs"):
        yield Twin(f"Tensor.__{name}__", "integers", partial(operation, name), (np.arange(-3, 4),))
    for name in ("exp", "log", "sqrt", "sin", "cos", "abs", "long"):
        yield Twin(f"Tensor.{name}", "integers", partial(method, name), (np.arange(7),))
    pair = array("normal", (3,), 0), array("normal", (3,), 1)
    yield Twin("Tensor.__add__", "two float types", lambda lib, a, b: a + b.float(), pair, deviates=True)
