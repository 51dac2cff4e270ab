"""Activations: what they refuse, and that a trace sees them by name."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm.graph import trace

NAMES = ["relu", "relu6", "leaky_relu", "elu", "gelu", "silu", "sigmoid", "tanh"]
WHOLE = ["relu", "relu6"]  # of integers, too
NAMES += ["hardswish", "hardsigmoid", "softplus", "softmax", "log_softmax"]


def call(name, x):
    return getattr(F, name)(x, 0) if "softmax" in name else getattr(F, name)(x)


@pytest.mark.parametrize("name", NAMES)
def test_integers_and_arrays_are_refused(name):
    kind = mn.bool if name in WHOLE else mn.int64
    with pytest.raises(TypeError, match=rf"{name}: x is {kind}; expected a float type; convert it with x.float\(\)"):
        call(name, mn.tensor([1, 0], dtype=kind))
    with pytest.raises(
        TypeError, match=rf"{name}: x is ndarray; expected a Tensor; make one with minorm.tensor\(data\)"
    ):
        call(name, np.ones(2, np.float32))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_wants_an_axis_there_is(name):
    x = mn.ones(2, 3)
    with pytest.raises(IndexError, match=rf"{name}: dim=2 is out of range for shape \(2, 3\); expected -2 to 1"):
        getattr(F, name)(x, 2)
    with pytest.raises(TypeError, match=f"{name}: dim is None; expected an int, the axis"):
        getattr(F, name)(x, None)


def test_options_are_checked():
    with pytest.raises(ValueError, match=r"gelu: approximate is 'erf'; expected 'none' .* or 'tanh'"):
        F.gelu(mn.ones(2), "erf")
    with pytest.raises(ValueError, match="softplus: beta is 0; expected a number above 0"):
        F.softplus(mn.ones(2), beta=0)


@pytest.mark.parametrize("name", NAMES)
def test_a_trace_names_the_functional(name):
    with trace.record() as calls:
        y = call(name, mn.ones(2))
    assert [c.target for c in calls] == [getattr(F, name)]
    assert calls[0].result is y
    assert len(calls[0].children) == 1


@pytest.mark.parametrize("name", NAMES)
def test_empty_and_scalar_tensors(name):
    assert call(name, mn.ones(3, 0)).shape == (3, 0) if "softmax" not in name else True
    if "softmax" not in name:
        assert call(name, mn.tensor(0.5)).shape == ()


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [("relu", ()), ("relu6", ()), ("hardtanh", (0.0, 4.9)), ("hardtanh", ()), ("threshold", (1.5, 7.9))],
)
def test_integers_stay_integers(name, arguments, dtype):
    torch = pytest.importorskip("torch")
    values = np.array([[-3, 0, 1], [2, 6, 100]]).astype(dtype)
    try:
        expected = getattr(torch.nn.functional, name)(torch.tensor(values), *arguments)
    except RuntimeError:
        with pytest.raises(
            ValueError, match=r"hardtanh: min_val is -1.0, input is uint8; expected min_val of at least 0"
        ):
            getattr(F, name)(mn.tensor(values), *arguments)
        return
    found = getattr(F, name)(mn.tensor(values), *arguments)
    assert str(found.dtype) == dtype
    np.testing.assert_array_equal(found.numpy(), expected.numpy())
    assert not found.requires_grad
