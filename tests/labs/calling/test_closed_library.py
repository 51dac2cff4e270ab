"""While students' tests run, each way to a library's normalization raises, and afterwards all is open again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn
from minorm.kernels import cpu, reference, variance
from minorm.kernels.partial import PartialBackend
from minorm.labs.calling.closed_library import LibraryClosed, closed
from minorm.normalization.equation import Equation
from minorm.normalization.nest import plan

NEST = plan((2, 3, 4), (0, 2), param=(1,))
X = mn.tensor(np.arange(24.0).reshape(2, 3, 4))
LAYER = nn.BatchNorm1d(3).to(dtype=mn.float64)
WAYS: dict[str, Callable[[], Any]] = {
    "batch_norm": lambda: F.batch_norm(X, None, None, training=True),
    "evaluation": lambda: F.batch_norm(X, mn.tensor(np.zeros(3)), mn.tensor(np.ones(3))),
    "layer_norm": lambda: F.layer_norm(X, (4,)),
    "group_norm": lambda: F.group_norm(X, 3),
    "rms_norm": lambda: F.rms_norm(X, (4,)),
    "instance_norm": lambda: F.instance_norm(X),
    "mean_variance_norm": lambda: F.mean_variance_norm(X, (0, 2)),
    "a layer that has run": lambda: LAYER(X),
    "16 bits": lambda: F.layer_norm(X.to(dtype=mn.float16), (4,)),
    "part of a backend": lambda: F.layer_norm(X, (4,), backend=PartialBackend(apply=lambda *_: None)),
    "the reference": lambda: reference.norm.forward(NEST, X.array, None, None, Equation()),
    "the kernels": lambda: cpu.norm.moments(NEST, X.array, True),
    "Welford of the library": lambda: variance.welford(X.array[0]),
    "torch": lambda: __import__("torch").nn.functional.batch_norm,
    "onnxruntime": lambda: __import__("onnxruntime").InferenceSession,
}


@pytest.mark.parametrize("way", WAYS)
def test_ways_are_closed(way: str) -> None:
    LAYER(X)
    with (
        closed(),
        pytest.raises(LibraryClosed, match="cannot be used here; use a formula, an invariant or a finite difference"),
    ):
        WAYS[way]()


def test_submodules_of_a_package_are_closed_too() -> None:
    with closed(), pytest.raises(ImportError):
        __import__("torch.nn.functional")


def test_own_functions_in_a_layer_are_not() -> None:
    def forward(nest: Any, x: Any, s: Any, b: Any, equation: Any) -> Any:
        del nest, s, b, equation
        return 0 * x, mn.kernels.protocol.Statistics(np.zeros((4, 6)))

    with closed():
        assert F.layer_norm(X, (4,), backend=PartialBackend(forward=forward)).shape == X.shape
        assert reference.norm.four(NEST, X.array).shape == (1, 3, 2, 4)


def test_afterwards_all_is_open() -> None:
    modules = {name: sys.modules.get(name) for name in ("torch", "onnxruntime", "scipy.stats")}
    expected = F.layer_norm(X, (4,)).array
    with closed():
        pass
    assert np.array_equal(F.layer_norm(X, (4,)).array, expected)
    assert {name: sys.modules.get(name) for name in modules} == modules
