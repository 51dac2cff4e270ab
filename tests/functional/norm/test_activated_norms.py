"""activation= and residual= of the normalizations: the same as the parts, and who may not have them."""

from __future__ import annotations

import re

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm.kernels.partial import PartialBackend
from minorm.testing import gradcheck


def tensors(rng, *shapes, dtype="float32"):
    return [mn.tensor(rng.standard_normal(shape).astype("f4")).to(dtype).requires_grad_() for shape in shapes]


def gradients(function, inputs):
    for t in inputs:
        t.grad = None
    y = function()
    (y * y).sum().backward()
    return [y.detach().numpy(), *(t.grad.numpy() for t in inputs)]


def same(one, parts, inputs):
    for got, want in zip(gradients(one, inputs), gradients(parts, inputs), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("case", ["plain", "mask", "backend", "variance", "float64", "permuted", "rank 6", "empty"])
def test_every_way_equals_the_parts(case, rng):
    shape, options, axes = (4, 6, 5, 7), {}, None
    if case == "rank 6":
        shape, axes = (2, 3, 2, 3, 2, 3), (0, 2, 4)
    if case == "empty":
        shape = (0, 6, 5, 7)
    x, r = tensors(rng, shape, shape)
    if case == "mask":
        options["mask"] = mn.tensor(rng.random(shape) < 0.5)
    elif case == "backend":
        options["backend"] = PartialBackend()
    elif case == "variance":
        options["variance"] = "two_pass"
    elif case == "float64":
        options["compute_dtype"] = "float64"
    see = (lambda t: t.permute(0, 3, 1, 2)) if case == "permuted" else lambda t: t

    def norm(**following):
        if axes is not None:
            return F.normalization(x, axes=axes, **following)
        return F.batch_norm(see(x), None, None, training=True, **options, **following)

    same(lambda: norm(activation="relu"), lambda: F.relu(norm()), [x])
    same(lambda: norm(activation="relu", residual=see(r)), lambda: F.relu(norm() + see(r)), [x, r])


def test_given_statistics_and_all_their_gradients(rng):
    x, r, mean, var, w, b = tensors(rng, (4, 6, 5), (4, 6, 5), 6, 6, 6, 6)
    var = mn.tensor(np.abs(var.detach().numpy()) + 1).requires_grad_()
    args = x, mean, var, w, b
    same(
        lambda: F.batch_norm(*args, activation="relu", residual=r), lambda: F.relu(F.batch_norm(*args) + r), [*args, r]
    )


def test_gradients_by_differences(rng):
    inputs = [mn.tensor(rng.standard_normal(shape)).requires_grad_() for shape in ((4, 6, 3), 6, 6, (4, 6, 3))]
    gradcheck(lambda x, w, b, r: F.group_norm(x, 2, w, b, activation="relu", residual=r), *inputs)


def test_a_residual_alone_and_one_that_wants_no_gradient(rng):
    x, r = tensors(rng, (4, 6), (4, 6))
    same(lambda: F.layer_norm(x, 6, residual=r), lambda: F.layer_norm(x, 6) + r, [x, r])
    r = r.detach()
    same(lambda: F.layer_norm(x, 6, activation="relu", residual=r), lambda: F.relu(F.layer_norm(x, 6) + r), [x])
    x, r = x.detach(), r.requires_grad_()
    same(lambda: F.layer_norm(x, 6, activation="relu", residual=r), lambda: F.relu(F.layer_norm(x, 6) + r), [r])


def test_autocast_and_a_residual_of_another_type(rng):
    x, r = tensors(rng, (4, 6), (4, 6))
    half = r.to("bfloat16").detach().requires_grad_()
    with mn.autocast("cpu"):
        same(
            lambda: F.layer_norm(x, 6, activation="relu", residual=half), lambda: F.relu(F.layer_norm(x, 6) + half), [x]
        )
    layer = mn.nn.BatchNorm1d(6)
    with pytest.raises(TypeError, match=r"batch_norm: residual is bfloat16, x is float32"):
        layer(x, activation="relu", residual=half)
    assert layer.num_batches_tracked.item() == 0


def test_the_result_must_not_change_before_backward(rng):
    (x,) = tensors(rng, (4, 6))
    y = F.layer_norm(x, 6, activation="relu")
    with mn.no_grad():
        y += 1
    with pytest.raises(RuntimeError, match="changed in place"):
        y.sum().backward()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"activation": "gelu"}, ValueError, "layer_norm: activation='gelu'; expected 'relu' or None"),
        ({"residual": 3}, TypeError, "layer_norm: residual is int"),
        ({"residual": mn.ones(6)}, ValueError, "residual has shape (6,); expected x.shape == (4, 6)"),
    ],
)
def test_mistakes(options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        F.layer_norm(mn.ones(4, 6), 6, **options)
