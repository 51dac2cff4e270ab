"""A backend that is handed in and does not keep the protocol gets an error that says where."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn
from minorm.kernels.partial import PartialBackend
from minorm.kernels.protocol import Statistics
from minorm.kernels.reference import norm


def run(backend: Any, training: bool = True) -> tuple[Any, Any]:
    """y and dx of a BatchNorm layer with this backend."""
    layer = nn.BatchNorm2d(3, backend=backend).train(training)
    x = mn.tensor(np.random.default_rng(0).standard_normal((4, 3, 5, 2)).astype(np.float32), requires_grad=True)
    y = layer(x)
    y.sum().backward()
    assert x.grad is not None
    return y.numpy(), x.grad.numpy()


def forward(change: Callable[[Any, Any], Any]) -> PartialBackend:
    return PartialBackend(forward=lambda *args: change(*norm.forward(*args)))


def backward(change: Callable[[Any, Any, Any], Any]) -> PartialBackend:
    return PartialBackend(backward=lambda *args: change(*norm.backward(*args)))


@pytest.mark.parametrize(
    ("backend", "error", "said"),
    [
        (forward(lambda y, _: y), TypeError, "forward: it returns float32(4, 3, 5, 2); expected 2: y, Statistics"),
        (forward(lambda *_: None), TypeError, "forward: it returns None (is there a return?); expected 2"),
        (forward(lambda y, s: (y, s, s)), TypeError, "forward: it returns 3 things; expected 2"),
        (forward(lambda y, s: (y, tuple(s.block))), TypeError, "its second result is tuple; expected Statistics.of("),
        (forward(lambda y, s: (y, Statistics(s.block.reshape(4, 1, 3, 1)))), ValueError,
         "k, d, var and rstd are of shape (1, 3, 1); expected vectors (3,)"),
        (forward(lambda y, s: (y.astype(float), s)), ValueError,
         "forward: y is float64(4, 3, 5, 2), x is float32(4, 3, 5, 2); expected x's shape and type"),
        (forward(lambda y, s: (y.ravel(), s)), ValueError, "forward: y is float32(120,)"),
        (forward(lambda y, s: (y.tolist(), s)), ValueError, "forward: y is list"),
        (backward(lambda dx, ds, _: (dx, ds)), TypeError, "backward: it returns 2 things; expected 3: dx, ds, db"),
        (backward(lambda dx, ds, db: (dx.astype(float), ds, db)), ValueError, "backward: dx is float64(4, 3, 5, 2)"),
        (backward(lambda dx, ds, db: (dx, ds.sum(), db)), ValueError,
            "ds is float32(); expected an array of 3 elements"),
        (backward(lambda dx, ds, db: (dx, ds, 3.0)), ValueError, "db is float; expected an array of 3 elements"),
        (PartialBackend(moments=lambda *args: norm.moments(*args)[:2]), TypeError,
         "moments: it returns 2 things; expected 3"),
        (object(), TypeError, "backend: object has no function forward; expected an object with the functions of"),
        (PartialBackend, TypeError, "backend is the class PartialBackend; expected an object"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(backend: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error) as raised:
        run(backend)
    assert said in str(raised.value)


def test_evaluation_too() -> None:
    wrong = PartialBackend(apply=lambda *args: norm.apply(*args).astype(float))
    with pytest.raises(ValueError, match=r"apply: y is float64\(4, 3, 5, 2\), x is float32"):
        run(wrong, training=False)


def test_a_module_of_functions_is_a_backend() -> None:
    mine = ModuleType("mine")
    mine.forward, mine.backward = norm.forward, norm.backward  # type: ignore[attr-defined]
    for got, expected in zip(run(mine), run(None), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)
    with pytest.raises(TypeError, match="module has no function apply"):
        run(mine, training=False)


def test_every_backend_of_ours_may_be_handed_in() -> None:
    from minorm.kernels.cpu import norm as compiled

    x = mn.tensor(np.random.default_rng(1).standard_normal((3, 4, 6)))
    for backend in (norm, compiled, PartialBackend()):
        np.testing.assert_allclose(
            F.group_norm(x, 2, backend=backend).numpy(), F.group_norm(x, 2).numpy(), rtol=1e-9, atol=1e-12
        )
