"""The convolution functions accept documented arguments, and say what is wrong with the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm.graph import trace


def zeros(*shape: int, dtype: Any = np.float32) -> Any:
    return mn.tensor(np.zeros(shape, dtype))


X, W = zeros(2, 4, 8, 8), zeros(6, 4, 3, 3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: F.conv2d(zeros(8, 8), W),
            ValueError,
            r"conv2d: x has 2 dimensions; expected 4, \(N, C, H, W\)",
        ),
        (lambda: F.conv1d(X, W), ValueError, r"conv1d: x has 4 dimensions; expected 3, \(N, C, L\)"),
        (lambda: F.conv2d(X, zeros(6, 4, 3)), ValueError, "conv2d: weight has 3 dimensions; expected 4"),
        (lambda: F.conv2d(X.numpy(), W), TypeError, "conv2d: x is ndarray; expected a Tensor; make one with"),
        (
            lambda: F.conv2d(zeros(2, 3, 8, 8), W),
            ValueError,
            r"weight has 4 input channels per group, x has 3 channels and groups=1; expected weight.shape\[1\]",
        ),
        (
            lambda: F.conv2d(X, zeros(5, 2, 3, 3), groups=2),
            ValueError,
            "groups=2 must divide the output channels; .* 5",
        ),
        (lambda: F.conv2d(X, W, groups=0), ValueError, "conv2d: groups is 0; expected an int >= 1"),
        (lambda: F.conv2d(X, W, zeros(5)), ValueError, r"bias has shape \(5,\); expected \(6,\)"),
        (lambda: F.conv2d(X, zeros(6, 4, 3, 3, dtype=np.float64)), TypeError, "weight is float64, x is float32"),
        (lambda: F.conv2d(zeros(2, 4, 8, 8, dtype=np.int64), W), TypeError, "x is int64; expected a float type"),
        (lambda: F.conv2d(X, W, stride=1.5), TypeError, "stride is 1.5; expected an int or a tuple of 2 ints"),
        (lambda: F.conv2d(X, W, stride=0), ValueError, "stride is 0; expected stride >= 1"),
        (
            lambda: F.conv2d(X, W, dilation=(1, 2, 3)),
            TypeError,
            r"dilation is \(1, 2, 3\); expected an int or a tuple of 2",
        ),
        (lambda: F.conv2d(X, W, padding=-1), ValueError, "padding is -1; expected padding >= 0"),
        (lambda: F.conv2d(X, W, padding=((0, -1), (0, 0))), ValueError, "expected padding >= 0 on every side"),
        (lambda: F.conv2d(X, W, padding="full"), ValueError, "padding is 'full'; expected 'same', 'valid'"),
        (
            lambda: F.conv2d(X, W, padding="same", stride=2),
            ValueError,
            r"padding='same' needs stride 1, stride is \(2, 2\)",
        ),
        (
            lambda: F.conv2d(zeros(2, 4, 2, 8), W),
            ValueError,
            r"kernel is larger than the padded input: the kernel spans \(3, 3\), and the input .* spans \(2, 8\)",
        ),
        (
            lambda: F.conv2d(zeros(2, 4, 4, 4), W, dilation=2),
            ValueError,
            r"the kernel spans \(5, 5\), and the input with .* spans \(4, 4\)",
        ),
        (
            lambda: F.conv2d(X, zeros(6, 4, 0, 3)),
            ValueError,
            "weight.shape is .*; expected at least 1 along every axis",
        ),
        (
            lambda: F.conv_transpose2d(X, W),
            ValueError,
            r"weight has 6 input channels, x has 4; expected weight.shape\[0\] == x.shape\[1\]",
        ),
        (
            lambda: F.conv_transpose2d(X, zeros(4, 2, 3, 3), stride=2, output_padding=2),
            ValueError,
            "output_padding is 2, stride is 2, dilation is 1; expected output_padding < stride",
        ),
        (
            lambda: F.conv_transpose2d(X, zeros(4, 2, 3, 3), padding="same"),
            TypeError,
            "padding is 'same'; expected an int",
        ),
        (
            lambda: F.conv_transpose2d(X, zeros(4, 2, 3, 3), groups=3),
            ValueError,
            "groups=3 must divide the input channels",
        ),
        (
            lambda: F.conv_transpose2d(zeros(1, 4, 0, 3), zeros(4, 2, 2, 2)),
            ValueError,
            "expected at least 1 along every axis but the first",
        ),
        (
            lambda: F.conv_transpose2d(zeros(1, 4, 1, 1), zeros(4, 2, 3, 3), padding=2),
            ValueError,
            "at least 1 along every",
        ),
    ],
)
def test_errors(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    ("padding", "pairs"),
    [
        (1, ((1, 1), (1, 1))),
        ((1, 2), ((1, 1), (2, 2))),
        ([2], ((2, 2), (2, 2))),
        (np.int64(2), ((2, 2), (2, 2))),
        ("valid", ((0, 0), (0, 0))),
        ("same", ((1, 1), (0, 1))),
        (((0, 1), (2, 0)), ((0, 1), (2, 0))),
    ],
)
def test_every_way_to_say_padding(padding: Any, pairs: Any) -> None:
    rng = np.random.default_rng(0)
    x, w = mn.tensor(rng.standard_normal((1, 2, 5, 5))), mn.tensor(rng.standard_normal((3, 2, 3, 2)))
    padded = mn.tensor(np.pad(x.numpy(), ((0, 0), (0, 0), *pairs)))
    np.testing.assert_allclose(F.conv2d(x, w, padding=padding).numpy(), F.conv2d(padded, w).numpy())


def test_a_trace_shows_one_call() -> None:
    with trace.record() as calls:
        F.conv2d(X, W, padding="same")
    (call,) = calls
    assert call.target is F.conv2d
    assert call.arguments["padding"] == "same"
    assert [child.target.__name__ for child in call.children] == ["Convolution"]


def test_an_empty_batch_and_a_kernel_as_large_as_the_input() -> None:
    assert F.conv2d(zeros(0, 4, 8, 8), W, padding=1).shape == (0, 6, 8, 8)
    assert F.conv2d(zeros(2, 4, 1, 3), W, padding=(1, 0)).shape == (2, 6, 1, 1)
    assert F.conv_transpose2d(zeros(0, 4, 2, 2), zeros(4, 3, 2, 2), stride=2).shape == (0, 3, 4, 4)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("name", ["conv", "conv_transpose"])
def test_one_sample_is_a_batch_of_one(name: str, axes: int) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((3, 5, 6, 4)[: axes + 1]), rng.standard_normal((3, 3, 2, 2, 2)[: axes + 2])
    b = rng.standard_normal(3)
    function, theirs = getattr(F, f"{name}{axes}d"), getattr(torch.nn.functional, f"{name}{axes}d")
    found = function(mn.tensor(x), mn.tensor(w), mn.tensor(b), stride=2)
    expected = theirs(torch.tensor(x), torch.tensor(w), torch.tensor(b), stride=2)
    assert found.shape == tuple(expected.shape)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12, atol=1e-12)
    named = function(x=mn.tensor(x), weight=mn.tensor(w), bias=mn.tensor(b), stride=2)
    assert np.array_equal(named.numpy(), found.numpy())


def test_a_trace_sees_one_sample_as_a_batch() -> None:
    with trace.record() as calls:
        F.conv2d(zeros(4, 8, 8), W)
    convolutions = [call for call in calls if call.target is F.conv2d]
    assert [call.arguments["x"].shape for call in convolutions] == [(1, 4, 8, 8)]
