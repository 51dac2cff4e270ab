"""The normalizations beside PyTorch and float64 formulas, and what they say of mistakes.

How exact they are, and on what, is in test_normalization_accuracy.py.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm.kernels.partial import PartialBackend
from minorm.normalization.layout import CopiedLayout
from minorm.tensor.tensor import Tensor


def over(x, axes, eps=1e-5, centered=True):
    """xhat and rstd in float64."""
    x = x.astype(np.float64)
    mean = x.mean(axes, keepdims=True) if centered else 0.0
    rstd = 1 / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + eps)
    return (x - mean) * rstd, rstd


def channels_last(x):
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)


# PyTorch


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("last", [False, True], ids=["row-major", "channels-last"])
@pytest.mark.parametrize("name", ["batch", "evaluation", "instance", "group", "one group", "layer", "rms"])
def test_beside_pytorch(name, last, dtype, rng):
    torch = pytest.importorskip("torch")
    x, dy = rng.standard_normal((2, 4, 6, 5, 7)).astype(dtype)
    x = channels_last(x) if last else x
    p_shape = (6, 5, 7) if name in ("layer", "rms") else (6,)
    w, b = rng.standard_normal((2, *p_shape)).astype(dtype)
    mean, var = rng.standard_normal(6).astype(dtype), rng.uniform(0.5, 2, 6).astype(dtype)

    def run(library, functional, momentum):
        make = (lambda a: Tensor(a.copy("K"), True)) if library is mn else (lambda a: torch.tensor(a).requires_grad_())
        X, W, B = make(x), make(w), make(b)
        M, V = (make(a).detach() for a in (mean, var))
        unbiased = {"unbiased_running_var": True} if library is mn else {}
        if name in ("batch", "evaluation"):
            y = functional.batch_norm(X, M, V, W, B, name == "batch", momentum, 1e-3, **unbiased)
        elif name == "instance":
            y = functional.instance_norm(X, M, V, W, B, True, momentum, 1e-3, **unbiased)
        elif "group" in name:
            y = functional.group_norm(X, 3 if name == "group" else 1, W, B, 1e-3)
        elif name == "layer":
            y = functional.layer_norm(X, (6, 5, 7), W, B, 1e-3)
        else:
            y = functional.rms_norm(X, (6, 5, 7), W, 1e-3)
        y.backward(Tensor(dy) if library is mn else torch.tensor(dy))
        tensors = (y.detach(), X.grad, W.grad, M, V) + (() if name == "rms" else (B.grad,))
        return [np.asarray(t) for t in tensors]

    ours, theirs = run(mn, F, 0.9), run(torch, torch.nn.functional, 0.1)
    eps = np.finfo(dtype).eps
    for got, want in zip(ours, theirs, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=50 * eps, atol=100 * eps)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_rms_norms_own_eps_is_pytorchs(dtype, rng):
    """Rows as small as eps: the machine epsilon of the type computed in, not of a 16-bit type."""
    torch = pytest.importorskip("torch", minversion="2.13")
    x = rng.standard_normal((4, 8)) * 1e-3
    y = F.rms_norm(mn.tensor(x, dtype=dtype), 8)
    theirs = torch.nn.functional.rms_norm(torch.tensor(x, dtype=getattr(torch, dtype)), (8,))
    np.testing.assert_allclose(y.array.astype("d"), theirs.double(), rtol=2 * float(ml_dtypes.finfo(y.dtype).eps))


# What PyTorch does not have


def test_one_scale_a_group(rng):
    x = rng.standard_normal((2, 6, 4))
    w, b = rng.standard_normal((2, 3))
    y = F.group_norm(*[Tensor(x)], 3, Tensor(w), Tensor(b))
    xhat, _ = over(x.reshape(2, 3, 8), (2,))
    np.testing.assert_allclose(y.array.reshape(2, 3, 8), xhat * w[:, None] + b[:, None], atol=1e-12)
    y = F.group_norm(Tensor(x), 1, Tensor(w[:1]), Tensor(b[:1]))
    np.testing.assert_allclose(y.array.reshape(2, -1), over(x.reshape(2, -1), (1,))[0] * w[0] + b[0], atol=1e-12)


def test_statistics_over_the_batch_alone(rng):
    x = rng.standard_normal((8, 3, 4, 5))
    w, b, mean, var = rng.standard_normal((4, 3, 4, 5)) ** 2 + 0.1
    running = [Tensor(mean.copy()), Tensor(var.copy())]
    y = F.batch_norm(Tensor(x), *running, Tensor(w), Tensor(b), True)
    np.testing.assert_allclose(y.array, over(x, (0,))[0] * w + b, atol=1e-12)
    np.testing.assert_allclose(running[0].array, 0.9 * mean + 0.1 * x.mean(0))
    np.testing.assert_allclose(running[1].array, 0.9 * var + 0.1 * x.var(0))
    y = F.batch_norm(Tensor(x), *running, Tensor(w), Tensor(b))
    np.testing.assert_allclose(y.array, (x - running[0].array) / np.sqrt(running[1].array + 1e-5) * w + b, atol=1e-12)


def test_mean_variance_norm_adds_eps_to_the_standard_deviation(rng):
    x = rng.standard_normal((4, 3, 5))
    y = F.mean_variance_norm(Tensor(x), (0, -1), 0.5)
    np.testing.assert_allclose(
        y.array, (x - x.mean((0, 2), keepdims=True)) / (x.std((0, 2), keepdims=True) + 0.5), atol=1e-12
    )
    constant = Tensor(np.full((2, 3, 4, 4), 5.0), True)
    y = F.mean_variance_norm(constant)
    y.sum().backward()
    np.testing.assert_array_equal(y.array, 0)
    np.testing.assert_allclose(constant.grad.array, 0, atol=1e-6)


@pytest.mark.parametrize(
    ("axes", "groups", "scale", "reduced"),
    [
        (0b1100, 1, (1, 6, 1, 1), (2, 3)),
        ((2, 3), 1, (1, 6, 1, 1), (2, 3)),
        ((2, 3), 3, (1, 6, 1, 1), None),
        ((2, 3), 3, (1, 3, 1, 1), None),
        ((2, 3), 1, (1, 1, 4, 5), (2, 3)),
        ((-1,), 1, (1, 1, 1, 5), (3,)),
        ((1,), 1, (1, 6, 1, 1), (1,)),
        ((0, 2, 3), 1, (2, 6, 4, 5), (0, 2, 3)),
        ((0, 2), 1, (2, 1, 4, 1), (0, 2)),
    ],
    ids=str,
)
def test_normalization_of_any_axes(axes, groups, scale, reduced, rng):
    x = rng.standard_normal((2, 6, 4, 5))
    s, b = rng.standard_normal((2, *scale))
    y = F.normalization(Tensor(x), Tensor(s), Tensor(b), axes, groups)
    if reduced:
        expected = over(x, reduced)[0]
    else:
        expected = over(x.reshape(2, groups, -1), (2,))[0].reshape(x.shape)
        s, b = (np.repeat(p, 6 // p.shape[1], 1) for p in (s, b))
    np.testing.assert_allclose(y.array, expected * s + b, atol=1e-12)


# Running statistics


def test_running_statistics_are_onnx(rng):
    x = rng.standard_normal((4, 3, 5))
    mean, var, batches = mn.zeros(3), mn.ones(3), mn.zeros((), dtype=mn.int64)
    F.batch_norm(Tensor(x), mean.double(), var.double(), training=True)  # copies: nothing changes here
    np.testing.assert_array_equal(mean.array, 0)
    F.batch_norm(Tensor(x.astype("f")), mean, var, None, None, True, 0.75, num_batches_tracked=batches)
    np.testing.assert_allclose(mean.array, 0.25 * x.mean((0, 2)), rtol=1e-5)
    np.testing.assert_allclose(var.array, 0.75 + 0.25 * x.var((0, 2)), rtol=1e-5)
    assert batches.item() == 1


def test_cumulative_average(rng):
    x = rng.standard_normal((3, 4, 2, 5)).astype(np.float32)
    mean, var, batches = mn.zeros(2), mn.ones(2), mn.zeros((), dtype=mn.int64)
    for batch in x:
        F.batch_norm(Tensor(batch), mean, var, None, None, True, None, num_batches_tracked=batches)
    np.testing.assert_allclose(mean.array, x.mean((0, 1, 3)), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(var.array, x.var((1, 3)).mean(0), rtol=1e-5)
    assert batches.item() == 3


@pytest.mark.parametrize(
    "how", ["evaluation", "off", "empty", "empty positions", "error", "error in the kernel", "read-only variance"]
)
def test_running_statistics_stay(how):
    mean, var, batches = mn.zeros(3), mn.ones(3), mn.zeros((), dtype=mn.int64)
    x = mn.randn(0 if how == "empty" else 4, 3, 0 if how == "empty positions" else 5)
    arguments = {"num_batches_tracked": batches}
    if how == "evaluation":
        F.batch_norm(x, mean, var, **arguments)
    elif how == "off":
        with mn.no_stats_update():
            F.batch_norm(x, mean, var, training=True, **arguments)
    elif how.startswith("empty"):
        assert F.batch_norm(x, mean, var, training=True, **arguments).shape == x.shape
    elif how == "error in the kernel":

        def apply(*_):
            raise MemoryError

        with pytest.raises(MemoryError):
            F.batch_norm(x, mean, var, training=True, backend=PartialBackend(apply=apply), **arguments)
    elif how == "read-only variance":
        var.array.flags.writeable = False
        with pytest.raises(ValueError, match="running_var is read-only"):
            F.batch_norm(x, mean, var, training=True, **arguments)
    else:
        with pytest.raises(ValueError, match="weight"):
            F.batch_norm(x, mean, var, mn.ones(4), training=True, **arguments)
    np.testing.assert_array_equal(mean.array, 0)
    np.testing.assert_array_equal(var.array, 1)
    assert batches.item() == 0
    assert mean.version.count == 0


def test_an_error_after_the_kernel_leaves_running_statistics(monkeypatch, rng):
    """Data whose loops no kernel takes is copied, and the result back: where that fails, nothing has changed yet."""
    x = rng.standard_normal((2, 3, 2, 2, 2)).transpose(3, 1, 4, 0, 2).astype(np.float32, order="K")
    mean, var = mn.zeros(3), mn.ones(3)

    def fail(*_):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(CopiedLayout, "result", fail)
        with pytest.raises(MemoryError):
            F.instance_norm(Tensor(x), mean, var)
    np.testing.assert_array_equal(mean.array, 0)
    np.testing.assert_array_equal(var.array, 1)
    F.instance_norm(Tensor(x), mean, var)
    np.testing.assert_allclose(mean.array, 0.1 * x.mean((0, 2, 3, 4)), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("step", [-1, 2])
def test_running_statistics_with_gaps_are_changed_where_they_lie(step, rng):
    x = rng.standard_normal((4, 3, 5))
    memory = np.zeros((2, 6))
    memory[1] = 1
    mean, var = (Tensor(row[::step][:3]) for row in memory)
    F.batch_norm(Tensor(x), mean, var, training=True)
    np.testing.assert_allclose(mean.array, 0.1 * x.mean((0, 2)))
    np.testing.assert_allclose(var.array, 0.9 + 0.1 * x.var((0, 2)))
    assert (memory != [[0], [1]]).sum() == 6
    y = F.batch_norm(Tensor(x), mean, var)
    column = (3, 1)
    expected = (x - mean.array.reshape(column)) / np.sqrt(var.array.reshape(column) + 1e-5)
    np.testing.assert_allclose(y.array, expected, atol=1e-12)


def test_integers_of_numpy_are_integers(rng):
    x = Tensor(rng.standard_normal((2, 6, 4, 5)))
    same = np.testing.assert_array_equal
    same(F.group_norm(x, np.int64(3)).array, F.group_norm(x, 3).array)
    same(F.layer_norm(x, np.int32(5)).array, F.layer_norm(x, 5).array)
    same(F.layer_norm(x, np.array([4, 5])).array, F.layer_norm(x, (4, 5)).array)
    for axes in (np.int64(0b1100), np.array([2, 3]), [2, np.int64(3)], range(2, 4)):
        same(F.normalization(x, axes=axes).array, F.normalization(x, axes=(2, 3)).array)
    same(F.mean_variance_norm(x, np.array([0, 2, 3]), np.float32(0)).array, F.mean_variance_norm(x, eps=0).array)


def test_what_used_the_old_statistics_knows_that_they_changed():
    x, mean, var = mn.randn(4, 3).requires_grad_(), mn.zeros(3), mn.ones(3)
    y = F.batch_norm(x, mean, var)
    F.batch_norm(x, mean, var, training=True)
    with pytest.raises(RuntimeError, match="changed in place"):
        y.sum().backward()


# Errors name the operation, the argument, the value and the expected one


X, ONES = mn.randn(2, 6, 4, 4), mn.ones(6)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: F.batch_norm(mn.randn(1, 3), None, None, training=True), ValueError,
         r"batch_norm: one value per channel.*x.shape is \(1, 3\)"),
        (lambda: F.batch_norm(mn.randn(1, 3, 1, 1), None, None, training=True), ValueError, r"\(1, 3, 1, 1\)"),
        (lambda: F.batch_norm(mn.randn(4, 0, 2), None, None, training=True), ValueError,
         r"batch_norm: x has no channels; x.shape is \(4, 0, 2\)"),
        (lambda: F.batch_norm(mn.randn(4), None, None, training=True), ValueError, r"expected \(N, C\)"),
        (lambda: F.batch_norm(X, None, None), ValueError, "running_mean or running_var is None and training=False"),
        (lambda: F.batch_norm(X, mn.zeros(6), None, training=True), ValueError, "only one of running_mean and"),
        (lambda: F.batch_norm(X, mn.zeros(5), mn.ones(6)), ValueError,
         r"running_mean has shape \(5,\), x has 6 channels; expected running_mean.shape == \(6,\)"),
        (lambda: F.batch_norm(X, None, None, mn.ones(6).to(mn.int64), training=True), TypeError,
         "batch_norm: weight is int64; expected a float type"),
        (lambda: F.batch_norm(X, mn.zeros(6), mn.ones(6), training=True, momentum=1.5), ValueError, "momentum=1.5"),
        (lambda: F.batch_norm(X, mn.zeros(6), mn.ones(6), training=True, momentum=None), ValueError,
         "momentum=None.*num_batches_tracked"),
        (lambda: F.batch_norm(X, mn.zeros(6), mn.ones(6), training=True, momentum=float("nan")), ValueError,
         "momentum=nan"),
        (lambda: F.batch_norm(X, mn.zeros(6), mn.ones(6), training=True, momentum="0.9"), TypeError,
         r"batch_norm: momentum is '0\.9'; expected a number"),
        (lambda: F.batch_norm(X, mn.zeros(6), mn.ones(6), training=True, num_batches_tracked=3), TypeError,
         "batch_norm: num_batches_tracked is int; expected a Tensor"),
        (lambda: F.batch_norm(X, mn.zeros(6), mn.ones(6), training=True, num_batches_tracked=mn.zeros(1)), ValueError,
         "num_batches_tracked is float32 of shape .*; expected one integer"),
        (lambda: F.batch_norm(X, ONES, ONES, training=True), ValueError, "running_mean and running_var are the same"),
        (lambda: F.batch_norm(X, None, None, training=True, eps=-1e-5), ValueError, "batch_norm: eps=-1e-05; expected"),
        (lambda: F.instance_norm(X, eps=float("nan")), ValueError, "instance_norm: eps=nan; expected a number"),
        (lambda: F.layer_norm(X, 4, eps=None), TypeError, "layer_norm: eps is None; expected a number"),
        (lambda: F.rms_norm(X, 4, eps=np.ones(4)), TypeError, "rms_norm: eps is array.*; expected a number"),
        (lambda: F.batch_norm(X.long(), None, None, training=True), TypeError, "x is int64; expected a float type"),
        (lambda: F.batch_norm(X.array, None, None, training=True), TypeError, "x is ndarray; expected a Tensor"),
        (lambda: F.instance_norm(mn.randn(2, 3, 1)), ValueError, r"one position per channel.*\(2, 3, 1\)"),
        (lambda: F.instance_norm(mn.randn(2, 3)), ValueError, r"expected \(N, C, \*positions\)"),
        (lambda: F.instance_norm(X, use_input_stats=False), ValueError, "use_input_stats=False"),
        (lambda: F.instance_norm(X, weight=mn.ones(4)), ValueError, r"weight has shape \(4,\), x has 6 channels"),
        (lambda: F.group_norm(X, 4), ValueError, r"group_norm: num_groups=4 must divide channels=6; x.shape is \(2, 6"),
        (lambda: F.group_norm(X, 0), ValueError, "num_groups=0 must divide"),
        (lambda: F.group_norm(X, 2.0), TypeError, "num_groups is 2.0; expected an int"),
        (lambda: F.group_norm(X, 3, mn.ones(4)), ValueError, r"weight has shape \(4,\).*\(6,\).*or \(3,\)"),
        (lambda: F.group_norm(X, 3, mn.ones(6), mn.ones(3)), ValueError, r"bias \(3,\)"),
        (lambda: F.layer_norm(X, 5), ValueError, r"normalized_shape is \(5,\), x ends in \(4,\)"),
        (lambda: F.layer_norm(X, ()), ValueError, r"normalized_shape is \(\)"),
        (lambda: F.layer_norm(X, (4, 4), mn.ones(4)), ValueError, r"weight has shape \(4,\); expected weight.shape"),
        (lambda: F.layer_norm(X, 4.0), TypeError, r"layer_norm: normalized_shape is 4\.0; expected an int"),
        (lambda: F.rms_norm(X, (3, 4)), ValueError, r"rms_norm: normalized_shape is \(3, 4\)"),
        (lambda: F.mean_variance_norm(mn.randn(2, 3, 4)), ValueError, r"axes \(0, 2, 3\) go beyond the 3 axes"),
        (lambda: F.mean_variance_norm(X, (1, 1)), ValueError, "name an axis twice"),
        (lambda: F.mean_variance_norm(X, 1.0), TypeError, "axes is 1.0; expected a tuple"),
        (lambda: F.normalization(X, axes=0b10000), ValueError, "axes=0b10000 is no mask of the 4 axes"),
        (lambda: F.normalization(X, axes=0), ValueError, "axes=0b0 is no mask"),
        (lambda: F.normalization(X, axes=True), TypeError, "axes is True; expected a tuple"),
        (lambda: F.normalization(X, axes=(1.0,)), TypeError, r"one of axes is 1\.0; expected an int"),
        (lambda: F.normalization(X, num_groups=1.0), TypeError, r"num_groups is 1\.0; expected an int"),
        (lambda: F.normalization(X, compute_dtype="wide"), TypeError, "compute_dtype is 'wide'; expected"),
        (lambda: F.normalization(X, axes=(1, 2), num_groups=3), ValueError, "contain the channel axis 1"),
        (lambda: F.normalization(X, mn.ones(6)), ValueError, r"scale has shape \(6,\).*expected one shape with 4 axes"),
        (lambda: F.normalization(X, mn.ones(1, 3, 1, 1)), ValueError, "each as long as in x or of length 1"),
        (lambda: F.normalization(X, compute_dtype=mn.float16), TypeError, "compute_dtype is float16"),
        (lambda: F.normalization(X.double(), compute_dtype=mn.float32), TypeError, "no less precise than x"),
    ],
)  # fmt: skip
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()
