"""How exact the normalizations are, on data that is kind and unkind, against the formula in float64.

Every operation, in rows and in lanes (row-major, channels-last, N x C), in all types. The bounds are promises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm.devices import dtypes
from minorm.tensor.tensor import Tensor

IMAGES, MATRIX = (32, 16, 16, 16), (256, 768)


@dataclass
class Operation:
    """f(x, weight, bias); and the formula: x as `split`, statistics over `axes` of it, weight and bias as `wide`."""

    f: Any
    shape: tuple[int, ...]
    split: tuple[int, ...]
    axes: tuple[int, ...]
    weight: tuple[int, ...]
    wide: tuple[int, ...]
    eps: float = 1e-5
    centered: bool = True

    def statistics(self, x):
        """mean and var in float64."""
        x = x.astype(np.float64).reshape(self.split)
        mean = x.mean(self.axes, keepdims=True) if self.centered else 0.0
        return mean, np.square(x - mean).mean(self.axes, keepdims=True)

    def xhat(self, x):
        mean, var = self.statistics(x)
        rstd = 1 / (np.sqrt(var) + self.eps) if self.f is mean_variance else 1 / np.sqrt(var + self.eps)
        return (x.astype(np.float64).reshape(self.split) - mean) * rstd, rstd

    def forward(self, x, w, b):
        w, b = (p.astype(np.float64).reshape(self.wide) for p in (w, b))
        return (self.xhat(x)[0] * w + (b if self.has_bias else 0)).reshape(self.shape)

    def backward(self, dy, x, w):
        xhat, rstd = self.xhat(x)
        dy = dy.astype(np.float64).reshape(self.split)
        g = dy * w.astype(np.float64).reshape(self.wide)
        mean_g = g.mean(self.axes, keepdims=True) if self.centered else 0.0
        dx = rstd * (g - mean_g - xhat * (g * xhat).mean(self.axes, keepdims=True))
        padded = (1,) * (len(self.split) - len(self.wide)) + self.wide
        shared = tuple(i for i, n in enumerate(padded) if n == 1)
        dw, db = (t.sum(shared).reshape(self.weight) for t in (dy * xhat, dy))
        return dx.reshape(self.shape), dw, db if self.has_bias else np.zeros_like(db)

    @property
    def has_bias(self):
        return self.f is not rms

    def parameters(self, rng, dtype=np.float32):
        return [rng.standard_normal(self.weight).astype(dtype) for _ in range(2)]


def batch(x, w, b, **options):
    return F.batch_norm(x, None, None, w, b, True, **options)


def instance(x, w, b, **options):
    return F.instance_norm(x, None, None, w, b, **options)


def group(x, w, b, **options):
    return F.group_norm(x, 4, w, b, **options)


def layer(x, w, b, **options):
    return F.layer_norm(x, w.shape, w, b, **options)


def rms(x, w, b, **options):
    return F.rms_norm(x, w.shape, w, 1e-5, **options)


def mean_variance(x, w, b, **options):
    return F.mean_variance_norm(x, **options) * w + b


def general(x, w, b, **options):
    return F.normalization(x, w, b, (2, 3), 4, **options)


OPERATIONS = {
    "batch": Operation(batch, IMAGES, IMAGES, (0, 2, 3), (16,), (16, 1, 1)),
    "batch N x C": Operation(batch, (4096, 32), (4096, 32), (0,), (32,), (32,)),
    "batch over N alone": Operation(batch, (256, 4, 8, 8), (256, 4, 8, 8), (0,), (4, 8, 8), (4, 8, 8)),
    "instance": Operation(instance, IMAGES, IMAGES, (2, 3), (16,), (16, 1, 1)),
    "group": Operation(group, IMAGES, (32, 4, 4, 16, 16), (2, 3, 4), (16,), (4, 4, 1, 1)),
    "group, a scale a group": Operation(group, IMAGES, (32, 4, 4, 16, 16), (2, 3, 4), (4,), (4, 1, 1, 1)),
    "layer": Operation(layer, MATRIX, MATRIX, (1,), (768,), (768,)),
    "layer CHW": Operation(layer, IMAGES, IMAGES, (1, 2, 3), IMAGES[1:], IMAGES[1:]),
    "rms": Operation(rms, MATRIX, MATRIX, (1,), (768,), (768,), centered=False),
    "rms CHW": Operation(rms, IMAGES, IMAGES, (1, 2, 3), IMAGES[1:], IMAGES[1:], centered=False),
    "mean variance": Operation(mean_variance, IMAGES, IMAGES, (0, 2, 3), (16, 1, 1), (16, 1, 1), 1e-9),
    "any": Operation(general, IMAGES, (32, 4, 4, 16, 16), (2, 3, 4), (1, 4, 1, 1), (4, 1, 1, 1)),
}
EXACT = [name for name in OPERATIONS if name != "mean variance"]  # that one multiplies and adds in the data's type

every_operation = pytest.mark.parametrize("op", OPERATIONS.values(), ids=OPERATIONS)
every_exact_one = pytest.mark.parametrize("op", [OPERATIONS[name] for name in EXACT], ids=EXACT)
both_layouts = pytest.mark.parametrize("last", [False, True], ids=["row-major", "channels-last"])


def lay_out(x, last):
    """x as it is, or with its channels next to each other in memory."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1) if last else x


@both_layouts
@pytest.mark.parametrize("offset", [0, 1e2, 1e4, 1e6, 1e7])
@every_operation
def test_forward_at_any_offset(op, offset, last, rng):
    x = lay_out((rng.standard_normal(op.shape) + offset).astype(np.float32), last)
    w, b = np.ones(op.weight, np.float32), np.zeros(op.weight, np.float32)
    assert np.abs(op.f(*map(Tensor, (x, w, b))).array - op.forward(x, w, b)).max() < 5e-6


@both_layouts
@pytest.mark.parametrize("outlier", [1e3, 1e6])
@pytest.mark.parametrize("offset", [0, 1e4])
@every_operation
def test_one_outlier_leaves_the_variance_exact(op, offset, outlier, last, rng):
    """An outlier as the first element, where a naive shift would go. The others' y show rstd, and rstd the variance."""
    x = (rng.standard_normal(op.shape) + offset).astype(np.float32)
    x.reshape(-1)[0] = outlier
    w, b = np.ones(op.weight, np.float32), np.zeros(op.weight, np.float32)
    y = op.f(*map(Tensor, (lay_out(x, last), w, b))).array.astype(np.float64).reshape(op.split)
    mean, var = op.statistics(x)
    kept = tuple(slice(None) if i not in op.axes else 0 for i in range(y.ndim))
    found = (y - y.mean(op.axes, keepdims=True) if op.centered else y)[kept] / (x.reshape(op.split) - mean)[kept]
    first = (0,) * found.ndim  # the statistic that the outlier is in; it is the element itself
    eps = 0 if op.f is mean_variance else op.eps
    assert abs(1 / found[first] ** 2 - eps - var[kept][first]) / var[kept][first] < 1e-6


@both_layouts
@pytest.mark.parametrize("offset", [0, 1e4, 1e6])
@every_operation
def test_backward_at_any_offset(op, offset, last, rng):
    x = lay_out((rng.standard_normal(op.shape) + offset).astype(np.float32), last)
    dy = rng.standard_normal(op.shape).astype(np.float32)
    w, b = op.parameters(rng)
    inputs = [Tensor(a, True) for a in (x, w, b)]
    op.f(*inputs).backward(dy)
    for name, want, tensor in zip(("dx", "dw", "db"), op.backward(dy, x, w), inputs, strict=True):
        if name == "db" and not op.has_bias:
            assert tensor.grad is None
            continue
        error = np.linalg.norm(tensor.grad.array - want) / np.linalg.norm(want)
        assert error < 1e-6, (name, error)


@both_layouts
@pytest.mark.parametrize("offset", [0, 1e4, 1e6])
@pytest.mark.parametrize(("shape", "of_statistics"), [(IMAGES, (16,)), ((4096, 32), (32,)), (IMAGES, IMAGES[1:])])
def test_evaluation_is_exact_on_the_stored_statistics(shape, of_statistics, offset, last, rng):
    x = lay_out((rng.standard_normal(shape) + offset).astype(np.float32), last)
    mean = (rng.standard_normal(of_statistics) * 0.1 + offset).astype(np.float32)
    var = (rng.standard_normal(of_statistics) ** 2 + 0.5).astype(np.float32)
    w, b = rng.standard_normal((2, *of_statistics)).astype(np.float32)
    column = (*of_statistics, *[1] * (len(shape) - 1 - len(of_statistics)))
    m, v, wide_w, wide_b = (a.astype(np.float64).reshape(column) for a in (mean, var, w, b))
    expected = (x - m) / np.sqrt(v + 1e-5) * wide_w + wide_b
    functions = [F.batch_norm]
    if len(shape) > 2 and len(of_statistics) == 1:
        functions.append(lambda *a: F.instance_norm(*a, use_input_stats=False))
    for f in functions:
        y = f(*[Tensor(a) for a in (x, mean, var, w, b)])
        assert (np.abs(y.array - expected) / (1 + np.abs(expected))).max() < 1e-6


@both_layouts
@pytest.mark.parametrize("value", [0, 0.1, 12345.678, 1e30])
@pytest.mark.parametrize("op", [op for op in OPERATIONS.values() if op.centered], ids=lambda op: op.f.__name__)
def test_constant_input_gives_the_bias(op, value, last, rng):
    x = Tensor(lay_out(np.full(op.shape, value, np.float32), last), True)
    w, b = map(Tensor, op.parameters(rng))
    y = op.f(x, w, b)
    np.testing.assert_array_equal(y.array, op.forward(np.zeros(op.shape), w.array, b.array).astype(np.float32))
    y.backward(rng.standard_normal(op.shape).astype(np.float32))
    assert np.isfinite(x.grad.array).all()


@both_layouts
@pytest.mark.parametrize("magnitude", [1e-40, 1e-30, 1e20, 1e30])
@every_operation
def test_magnitudes(op, magnitude, last, rng):
    """Squares that leave float32's range; 1e-40 is a denormal number itself, and must not be taken for 0."""
    x = lay_out((rng.standard_normal(op.shape) * magnitude).astype(np.float32), last)
    w, b = np.ones(op.weight, np.float32), np.zeros(op.weight, np.float32)
    y = op.f(*map(Tensor, (x, w, b))).array
    assert np.isfinite(y).all()
    rstd = 1 / op.eps if op.f is mean_variance else 1 / np.sqrt(op.eps)
    smallest = 2.0**-149 * rstd if magnitude < 1e-38 else 0  # the last place of a mean that small
    np.testing.assert_allclose(y, op.forward(x, w, b), rtol=1e-5, atol=5e-6 if magnitude > 1 else smallest)


@both_layouts
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@every_exact_one
def test_nan_and_infinity_stay_in_their_statistic(op, bad, last, rng):
    x = rng.standard_normal(op.shape).astype(np.float32)
    x.reshape(-1)[7] = bad
    w, b = np.ones(op.weight, np.float32), np.zeros(op.weight, np.float32)
    y = op.f(*map(Tensor, (lay_out(x, last), w, b))).array.reshape(op.split)
    with np.errstate(all="ignore"):
        expected = op.forward(x, w, b).reshape(op.split)
    touched = np.broadcast_to(~np.isfinite(x.reshape(op.split)).all(op.axes, keepdims=True), op.split)
    np.testing.assert_allclose(y[~touched], expected[~touched], atol=5e-6)
    assert np.isnan(y[touched]).any()
    assert not np.isfinite(y.reshape(-1)[7])


# Types


def one_unit(exact, dtype):
    """The distance between two neighbours of a 16-bit type around a number."""
    info = ml_dtypes.finfo(dtype)
    return np.maximum(np.exp2(np.floor(np.log2(np.abs(exact) + 1e-300))), float(info.smallest_normal)) * float(info.eps)


@both_layouts
@pytest.mark.parametrize("offset", [0, 100])
@pytest.mark.parametrize("params", ["the same type", "float32"])
@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16], ids=str)
@every_exact_one
def test_16_bit_results_are_within_one_unit_of_the_last_place(op, dtype, params, offset, last, rng):
    """One rounding is half a unit, and float32 adds little; but where w * xhat and b cancel, no more than float32 has.

    Gradients are sums: they are held to half a unit, and to float32's digits of the largest.
    """
    x = lay_out((rng.standard_normal(op.shape) * 3 + offset).astype(dtype), last)
    dy = rng.standard_normal(op.shape).astype(dtype)
    w, b = op.parameters(rng, np.float32 if params == "float32" else dtype)
    inputs = [Tensor(a, True) for a in (x, w, b)]
    y = op.f(*inputs)
    assert y.dtype == dtype
    exact = op.forward(x, w, b)
    terms = np.abs(exact - op.forward(x, w, 0 * b)) + np.abs(op.forward(x, w, 0 * b))
    assert (np.abs(y.array.astype(np.float64) - exact) <= one_unit(exact, dtype) + 5e-7 * terms).all()
    y.backward(Tensor(dy))
    for want, tensor in zip(op.backward(dy, x, w), inputs, strict=True):
        if tensor.grad is None:
            continue
        assert tensor.grad.dtype == tensor.dtype
        error = np.abs(tensor.grad.array.astype(np.float64) - want)
        assert (error <= 0.51 * one_unit(want, tensor.dtype) + 1e-5 * np.abs(want).max()).all()


@both_layouts
@every_exact_one
def test_compute_dtype_is_honoured_forward_and_backward(op, last, rng):
    """In float64 nothing is lost before the one rounding at the end; in float32 a little is, so the two differ."""
    x, dy = (lay_out((rng.standard_normal(op.shape) + 100).astype(np.float32), last) for _ in range(2))
    w, b = op.parameters(rng)

    def run(**options):
        inputs = [Tensor(a, True) for a in (x, w, b)]
        y = op.f(*inputs, **options)
        y.backward(Tensor(dy))
        return [y.array, *(t.grad.array for t in inputs if t.grad is not None)]

    expected = [op.forward(x, w, b), *op.backward(dy, x, w)]
    for i, (narrow, wide, exact) in enumerate(zip(run(), run(compute_dtype=mn.float64), expected, strict=False)):
        assert narrow.dtype == wide.dtype == np.float32
        rounded = exact.astype(np.float32)
        assert (wide == rounded).mean() > 0.999  # the formula sums in another order: a tie may fall the other way
        assert np.abs(wide - exact).max() <= np.abs(np.spacing(rounded)).max()
        assert (narrow != wide).mean() > 0.01 or i >= 2  # few sums, in double anyway, may come out alike


@pytest.mark.parametrize("statistic", ["batch_norm", "instance_norm"])
def test_compute_dtype_of_an_evaluation(statistic, rng):
    """With given statistics too, and for the gradients of all five inputs."""
    function = getattr(F, statistic)
    shape = (32, 16, 6, 7)
    x, dy = ((rng.standard_normal(shape) + 100).astype(np.float32) for _ in range(2))
    mean, var, w, b = (rng.uniform(0.5, 1.5, 16).astype(np.float32) for _ in range(4))
    wide = [a.astype(np.float64) for a in (x, mean, var, w, b)]
    found = []
    for arrays, options in (
        ((x, mean, var, w, b), {}),
        ((x, mean, var, w, b), {"compute_dtype": mn.float64}),
        (wide, {}),
    ):
        inputs = [Tensor(a, True) for a in arrays]
        y = function(*inputs, False, **options)
        y.backward(Tensor(dy.astype(y.dtype)))
        found.append([y.array, *(t.grad.array for t in inputs)])
    for narrow, asked, exact in zip(*found, strict=True):
        assert asked.dtype == np.float32
        np.testing.assert_array_equal(asked, exact.astype(np.float32))
        np.testing.assert_allclose(narrow, asked, rtol=1e-5, atol=1e-6 * np.abs(asked).max())
    assert (found[0][0] != found[1][0]).any()
    assert (found[0][1] != found[1][1]).any()


def test_compute_dtype_of_mean_variance_norm(rng):
    x = (rng.standard_normal((8, 6, 9, 7)) + 100).astype(np.float32)
    y, dx = [], []
    for a, options in ((x, {}), (x, {"compute_dtype": "float64"}), (x.astype(np.float64), {})):
        tensor = Tensor(a, True)
        y.append(F.mean_variance_norm(tensor, **options))
        y[-1].backward(Tensor(np.cos(x).astype(a.dtype)))
        dx.append(tensor.grad.array)
    for narrow, asked, exact in ([t.array for t in y], dx):
        assert asked.dtype == np.float32
        assert (narrow != asked).mean() > 0.01
        np.testing.assert_array_equal(asked, exact.astype(np.float32))


@every_exact_one
@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16], ids=str)
def test_compute_dtype_of_16_bit_data(op, dtype, rng):
    """bfloat16 at an offset: y of float32 statistics and of float64 ones round alike nearly always, and to one unit."""
    x = (rng.standard_normal(op.shape) + 10).astype(dtype)
    w, b = op.parameters(rng)
    y = op.f(*map(Tensor, (x, w, b)), compute_dtype="float64").array
    assert y.dtype == dtype
    exact = op.forward(x, w, b)
    assert (np.abs(y.astype(np.float64) - exact) <= 0.5000001 * one_unit(exact, dtype)).all()


@every_operation
@pytest.mark.parametrize(("x", "asked"), [("float64", "float32"), ("float32", "float16"), ("float16", "int64")])
def test_a_compute_dtype_that_loses_digits_is_refused(op, x, asked):
    with pytest.raises(TypeError, match=rf"compute_dtype is {asked}, x is {x}; expected float32 or float64"):
        op.f(mn.ones(*op.shape, dtype=x), mn.ones(*op.weight), mn.ones(*op.weight), compute_dtype=asked)


@pytest.mark.parametrize("types", [
    ("float32", "bfloat16"), ("float32", "float64"), ("float64", "float16"), ("float64", "float32"),
    ("bfloat16", "float64"),
], ids=str)  # fmt: skip
@every_exact_one
def test_parameters_of_another_type_than_the_data(op, types, rng):
    """They are taken as they are, in the type computed in; each gradient has its tensor's type."""
    of_x, of_w = (getattr(mn, t) for t in types)
    x, dy = (rng.standard_normal(op.shape).astype(of_x) for _ in range(2))
    w, b = op.parameters(rng, of_w)
    inputs = [Tensor(a, True) for a in (x, w, b)]
    y = op.f(*inputs)
    y.backward(Tensor(dy))
    expected = [op.forward(x, w, b), *op.backward(dy.astype("d"), x, w)]
    found = [y, *(tensor.grad for tensor in inputs)]
    for got, want, dtype in zip(found, expected, (of_x, of_x, of_w, of_w), strict=True):
        if got is not None:
            assert got.dtype == dtype
            unit = max(float(ml_dtypes.finfo(of).eps) for of in (dtype, dtypes.compute_type(of_x)))
            np.testing.assert_allclose(got.array.astype("d"), want, rtol=unit, atol=4 * unit * np.abs(want).max())


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("types", [
    ("float16", "float32", "float32"), ("bfloat16", "float32", "float64"), ("float32", "float64", "float32"),
    ("float64", "float32", "float16"), ("float16", "bfloat16", "float32"),
], ids=str)  # fmt: skip
def test_data_parameters_and_statistics_of_three_types(types, training, rng):
    """ONNX's T, T1 and T2: y is of T, each gradient of its tensor's type, the running statistics stay in T2."""
    of_x, of_w, of_stats = (getattr(mn, t) for t in types)
    op = OPERATIONS["batch"]
    x, dy = (rng.standard_normal(op.shape).astype(of_x) for _ in range(2))
    w, b = op.parameters(rng, of_w)
    mean, var = rng.standard_normal(16).astype(of_stats), rng.uniform(0.5, 2, 16).astype(of_stats)
    running = [Tensor(a.copy(), not training) for a in (mean, var)]
    inputs = [Tensor(a, True) for a in (x, w, b)]
    y = F.batch_norm(inputs[0], *running, *inputs[1:], training)
    assert y.dtype == of_x
    y.backward(Tensor(dy))
    wide_x, wide_dy, wide_w, wide_b, m, v = (a.astype(np.float64) for a in (x, dy, w, b, mean, var))
    unit = max(float(ml_dtypes.finfo(of_x).eps), 1e-6)
    if training:
        exact, gradients = op.forward(x, w, b), op.backward(dy, x, w)
        batch_mean, batch_var = (s.reshape(16) for s in op.statistics(x))
        expected = (0.9 * m + 0.1 * batch_mean, 0.9 * v + 0.1 * batch_var)
        for found, want in zip(running, expected, strict=True):
            assert found.dtype == of_stats
            np.testing.assert_allclose(found.array.astype("d"), want, atol=4 * float(ml_dtypes.finfo(of_stats).eps))
    else:
        column = (16, 1, 1)
        rstd = 1 / np.sqrt(v + 1e-5)
        xhat = (wide_x - m.reshape(column)) * rstd.reshape(column)
        exact = xhat * wide_w.reshape(column) + wide_b.reshape(column)
        g = wide_dy * (wide_w * rstd).reshape(column)
        gradients = (g, (wide_dy * xhat).sum((0, 2, 3)), wide_dy.sum((0, 2, 3)))
        statistics = (-g.sum((0, 2, 3)), -0.5 * (g * xhat).sum((0, 2, 3)) * rstd)
        for tensor, want in zip(running, statistics, strict=True):
            assert tensor.grad.dtype == of_stats
            scale = max(float(ml_dtypes.finfo(of_stats).eps), 1e-6)
            np.testing.assert_allclose(tensor.grad.array.astype("d"), want, atol=4 * scale * np.abs(want).max())
    assert (np.abs(y.array.astype("d") - exact) <= unit * np.maximum(np.abs(exact), 1)).all()
    for tensor, want in zip(inputs, gradients, strict=True):
        assert tensor.grad.dtype == tensor.dtype
        scale = max(float(ml_dtypes.finfo(tensor.dtype).eps), 1e-6)
        np.testing.assert_allclose(tensor.grad.array.astype("d"), want, atol=4 * scale * np.abs(want).max())
