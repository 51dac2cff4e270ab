"""Lab 18: compares a folded layer with the layer and its BatchNorm, and error bounds with errors of a single sign."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from minorm.labs.checks.mistakes import lab18_fold_quantize as mistakes
from minorm.labs.checks.own_arithmetic import own_answer
from minorm.labs.comparing import close, equal, numbers, parts, true
from minorm.labs.lab import Lab

LAB = Lab(
    18,
    "lab18_fold_quantize",
    "Fold and quantize",
    "How does a network with BatchNorm become a network of bytes, and how large may its errors be?",
    minutes=90,
    needs=(1, 4),
)
TOO_WIDE = 10.0
U = 2.0**-24
right = mistakes.Right()


def _norm(rng: np.random.Generator, channels: int) -> tuple[Any, Any, float, Any, Any]:
    """Draw the statistics and parameters of a BatchNorm: mean, var, eps, s and b."""
    mean, s, b = rng.standard_normal((3, channels))
    return mean, rng.uniform(0.2, 3, channels), float(rng.uniform(1e-3, 0.5)), s, b


def _normalized(z: Any, mean: Any, var: Any, eps: float, s: Any, b: Any) -> Any:
    """Compute BatchNorm in evaluation mode, one channel after the other."""
    return np.stack([(z[:, i] - mean[i]) / (var[i] + eps) ** 0.5 * s[i] + b[i] for i in range(len(mean))], axis=1)


def _convolved(x: Any, W: Any, groups: int = 1) -> Any:
    """Convolve x (N, in, *positions) with W (C, in / groups, *kernel) without padding, in float64."""
    kernel, each = W.shape[2:], W.shape[0] // groups
    windows = np.lib.stride_tricks.sliding_window_view(x, kernel, axis=tuple(range(2, x.ndim)))
    inner = W.shape[1]
    found = []
    for i in range(W.shape[0]):
        first = i // each * inner
        part = np.moveaxis(windows[:, first : first + inner], 1, x.ndim - 1)
        found.append((part * W[i]).sum(axis=tuple(range(x.ndim - 1, part.ndim))))
    return np.stack(found, axis=1)


# 18.1


@LAB.check("18.1", "a linear layer", points=2, visible=True)
def folds_linear(student: Any, rng: np.random.Generator) -> None:
    for channels, n in ((3, 4), (4, 4)):
        x, W, c, norm = rng.standard_normal((6, n)), *rng.standard_normal((2, channels, n)), _norm(rng, channels)
        c = c[:, 0]
        expected = _normalized(x @ W.T + c, *norm)
        weight, bias = parts(own_answer(student, "fold", W, c, *norm), 2, "fold")
        what = f"fold of W {W.shape}"
        weight = numbers(weight, what, f"weights of shape {W.shape}")
        equal(weight.shape, W.shape, f"the shape of the weights, {what}")
        close(bias, _normalized(c[None], *norm)[0], f"the bias, {what}: the output for x = 0")
        close(x @ weight.T + bias, expected, f"the folded layer's output, {what}", rtol=1e-10, atol=1e-10)
        y = own_answer(student, "folded_linear", x, W, c, *norm)
        close(y, expected, f"folded_linear, x {x.shape}, W {W.shape}", rtol=1e-10, atol=1e-10)


@LAB.check("18.1", "convolutions", visible=True)
def folds_convolutions(student: Any, rng: np.random.Generator) -> None:
    for shape, groups, image in (((4, 4, 3), 1, (9,)), ((4, 2, 3, 2), 1, (5, 4)), ((6, 1, 2, 2), 3, (4, 3))):
        channels = shape[0]
        W, c, norm = rng.standard_normal(shape), rng.standard_normal(channels), _norm(rng, channels)
        x = rng.standard_normal((2, shape[1] * groups, *image))
        along = (-1, *[1] * len(image))
        expected = _normalized(_convolved(x, W, groups) + c.reshape(along), *norm)
        what = f"W {shape}, {groups} group{'s' * (groups > 1)}"
        weight, bias = parts(own_answer(student, "fold", W, c, *norm), 2, f"fold of {what}")
        weight = numbers(weight, f"fold of {what}", f"weights of shape {shape}")
        equal(weight.shape, shape, f"the shape of the weights, {what}")
        bias = numbers(bias, f"fold of {what}", f"a bias of shape ({channels},)")
        equal(bias.shape, (channels,), f"the shape of the bias, {what}")
        close(
            _convolved(x, weight, groups) + bias.reshape(along), expected, f"the folded convolution, {what}", rtol=1e-9
        )


@LAB.check("18.1", "no bias, small variances, negative scales, float32")
def folds_odd(student: Any, rng: np.random.Generator) -> None:
    W, x, zero = rng.standard_normal((5, 3)), rng.standard_normal((4, 3)), np.zeros(5)
    mean, _, _, s, b = _norm(rng, 5)
    for var, eps in ((np.full(5, 1e-7), 1e-5), (np.full(5, 2e-3), 1.0), (rng.uniform(50, 90, 5), 1e-12)):
        expected = _normalized(x @ W.T, 1e3 + mean, var, eps, -np.abs(s), b)
        folded = own_answer(student, "fold", W, None, 1e3 + mean, var, eps, -np.abs(s), b)
        weight, bias = parts(folded, 2, "fold without bias")
        what = f"the folded layer without bias, var about {var[0]:.3g}, eps={eps:g}"
        close(x @ np.asarray(weight).T + bias, expected, what, rtol=1e-9, atol=1e-7)
    narrow = [v.astype(np.float32) for v in (W, zero, mean, np.ones(5), s, b)]
    weight, bias = parts(student.fold(*narrow[:4], 1e-3, *narrow[4:]), 2, "fold in float32")
    close(weight, (W.T * (s / 1.001**0.5)).T, "the weights in float32", rtol=1e-6, atol=1e-7, dtype=np.float32)
    close(bias, b - mean * s / 1.001**0.5, "the bias in float32", rtol=1e-6, atol=1e-6, dtype=np.float32)


# 18.2


def _rounding(x: Any, W: Any, c: Any, mean: Any, var: Any, eps: float, s: Any, b: Any, u: float) -> Any:
    """Return the bound 2 gamma(n + 7) (|a| (sum |x| |W| + |c| + |mean|) + |b|); the sum runs over the n inputs."""
    k = W.shape[1] + 7
    terms = np.einsum("in,cn->ic", np.abs(x), np.abs(W)) + (np.abs(c) + np.abs(mean))
    return 2 * k * u / (1 - k * u) * (terms * np.abs(s / np.sqrt(var + eps)) + np.abs(b))


def _bounded(student: Any, rng: np.random.Generator, n: int, offset: float) -> None:
    x, W = offset + rng.standard_normal((7, n)), rng.standard_normal((5, n))
    c, (mean, var, eps, s, b) = rng.standard_normal(5), _norm(rng, 5)
    mean = mean + x.mean(axis=0) @ W.T  # as it would be
    narrow = [v.astype(np.float32) for v in (x, W, c, mean, var, s, b)]
    x, W, c, mean, var, s, b = (v.astype(np.float64) for v in narrow)
    nx, nW, nc, nmean, nvar, ns, nb = narrow
    one = (nx @ nW.T + nc - nmean) / np.sqrt(nvar + np.float32(eps)) * ns + nb
    a = ns / np.sqrt(nvar + np.float32(eps))
    other = nx @ (nW * a[:, None]).T + ((nc - nmean) * a + nb)
    apart = np.abs(one.astype(np.float64) - other)
    what = f"rounding_bound, x {x.shape}, W {W.shape}, numbers about {offset:g}"
    got = numbers(own_answer(student, "rounding_bound", x, W, c, mean, var, eps, s, b, U), what, f"shape {apart.shape}")
    equal(got.shape, apart.shape, f"the shape of {what}")
    true(
        (got >= apart).all(),
        what,
        "a bound that holds",
        f"errors up to {np.max(apart / got):.3g} times the bound, in float32",
    )
    close(got, _rounding(x, W, c, mean, var, eps, s, b, U), what, rtol=1e-6)


@LAB.check("18.2", "the bound, in float32", points=2, visible=True)
def bound(student: Any, rng: np.random.Generator) -> None:
    _bounded(student, rng, 16, 0.0)
    _bounded(student, rng, 5, 10.0)


@LAB.check("18.2", "many terms, large offsets, another u")
def bound_odd(student: Any, rng: np.random.Generator) -> None:
    _bounded(student, rng, 300, 1e4)
    _bounded(student, rng, 1, 0.0)
    x, W, c, norm = rng.standard_normal((2, 3)), rng.standard_normal((4, 3)), rng.standard_normal(4), _norm(rng, 4)
    got = student.rounding_bound(x, W, c, *norm, 2.0**-11)
    close(got, _rounding(x, W, c, *norm, 2.0**-11), "rounding_bound with u = 2^-11", rtol=1e-6)


# 18.3


def _lines(student: Any, rng: np.random.Generator, samples: int, n: int, channels: int, far: float) -> None:
    x, W, c, norm = (
        rng.standard_normal((samples, n)) + far,
        *rng.standard_normal((2, channels, n)),
        _norm(rng, channels),
    )
    c = c[:, 0]
    eps, s, b = norm[2:]
    slope, offset = parts(own_answer(student, "training_line", x, W, c, *norm), 2, "training_line")
    what = f"x {x.shape}, W {W.shape}"
    slope = numbers(slope, f"the slope, {what}", f"shape ({channels},)")
    offset = numbers(offset, f"the offset, {what}", f"shape ({channels},)")
    equal((slope.shape, offset.shape), ((channels,), (channels,)), f"the shapes of slope and offset, {what}")
    z = np.einsum("in,cn->ic", x, W) + c
    own = z.sum(axis=0) / samples
    trained = _normalized(z, own, ((z - own) ** 2).sum(axis=0) / samples, eps, s, b)
    close(slope * trained + offset, _normalized(z, *norm), f"slope * y_training + offset, {what}", rtol=1e-8, atol=1e-8)
    same = parts(student.training_line(x, W, c, own, z.var(axis=0), eps, s, b), 2, "training_line")
    for got, expected, name in zip(same, (np.ones(channels), np.zeros(channels)), ("slope", "offset"), strict=True):
        close(got, expected, f"the {name} where the running statistics are the batch's", rtol=1e-9, atol=1e-8)


@LAB.check("18.3", "a line for each channel", points=2, visible=True)
def lines(student: Any, rng: np.random.Generator) -> None:
    _lines(student, rng, 8, 4, 3, 0.5)


@LAB.check("18.3", "small batches, far from 0")
def lines_odd(student: Any, rng: np.random.Generator) -> None:
    _lines(student, rng, 2, 6, 6, 20.0)
    _lines(student, rng, 33, 1, 5, -3.0)


# 18.4


def _range(student: Any, low: float, high: float) -> tuple[float, int]:
    what = f"scale_and_zero({low:g}, {high:g})"
    scale, zero = parts(student.scale_and_zero(low, high), 2, what)
    first, last = min(low, 0.0), max(high, 0.0)
    expected = (last - first) / 255 if last > first else 1.0
    close(scale, expected, f"the scale, {what}")
    close(zero, max(-128, min(127, -128 - round(first / expected))), f"the zero point, {what}", rtol=0, atol=0)
    return float(expected), int(zero)


@LAB.check("18.4", "scale and zero point", points=2, visible=True)
def ranges(student: Any, rng: np.random.Generator) -> None:
    for low, high in ((-1.0, 4.1), (0.0, 6.0), (2.0, 6.0), (-7.0, -3.0), (-0.3, 12.0), (0.0, 0.0)):
        _range(student, low, high)


@LAB.check("18.4", "integers and back", points=2, visible=True)
def integers(student: Any, rng: np.random.Generator) -> None:
    x = np.array([-2.0, -1.25, -0.75, -0.25, 0.0, 0.25, 0.75, 1.25, 1.75, 60.0, 90.0, -90.0])
    q = student.quantize(x, 0.5, 3)
    expected = np.array([-1, 1, 1, 3, 3, 3, 5, 5, 7, 123, 127, -128], np.int8)
    equal(q, expected, f"quantize({x.tolist()}, scale 0.5, zero 3)")
    equal(np.asarray(q).dtype.name, "int8", "the type of q")
    close(student.dequantize(q, 0.5, 3), (expected.astype(float) - 3) / 2, "dequantize of this q", dtype=np.float64)
    equal(student.quantize(x, 0.5, 0, -127)[-1], -127, "quantize(-90, scale 0.5, least -127)")
    for axis, W in (
        (0, rng.standard_normal((3, 4))),
        (1, rng.standard_normal((4, 4))),
        (None, rng.standard_normal((3, 4))),
    ):
        _scales(student, W, axis)


def _scales(student: Any, W: Any, axis: int | None) -> None:
    kept = tuple(range(W.ndim)) if axis is None else tuple(i for i in range(W.ndim) if i != axis % W.ndim)
    largest = np.maximum(W.max(axis=kept, keepdims=axis is not None), -W.min(axis=kept, keepdims=axis is not None))
    expected = np.asarray(largest / 127)
    expected = np.where(expected == 0, 1.0, expected)
    close(student.weight_scales(W, axis), expected, f"weight_scales of W {W.shape}, axis {axis}")


@LAB.check("18.4", "odd ranges, and the half step")
def ranges_odd(student: Any, rng: np.random.Generator) -> None:
    for low, high in ((-255.0, 0.0), (-1e-6, 1.0), (-127.5, 127.5), (1e3, 1e3), *rng.normal(0, 5, (5, 2))):
        scale, zero = _range(student, min(low, high), max(low, high))
        first, last = min(low, high, 0.0), max(low, high, 0.0)
        x = np.linspace(first, last, 999)
        q = own_answer(student, "quantize", x, scale, zero)
        back = numbers(student.dequantize(q, scale, zero), "dequantize", "numbers")
        what = f"|dequantize(quantize(x)) - x| in steps, x from {first:.4g} to {last:.4g}"
        true(np.abs(back - x).max() <= 0.5000001 * scale, what, "at most 1/2", f"{np.abs(back - x).max() / scale:.4g}")
        equal(student.dequantize(student.quantize(np.zeros(1), scale, zero), scale, zero)[0], 0.0, "0, there and back")


@LAB.check("18.4", "scales of filters, of rows of zeros")
def scales_odd(student: Any, rng: np.random.Generator) -> None:
    W = rng.standard_normal((4, 3, 2, 5))
    W[2] = 0
    for axis in (0, 1, -1, None):
        _scales(student, W, axis)
    _scales(student, np.zeros((2, 3)), None)
    scale = np.abs(W).max(axis=(1, 2, 3), keepdims=True) / 127 + (np.arange(4) == 2).reshape(4, 1, 1, 1)
    equal(
        student.quantize(W, scale, 0, -127),
        np.rint(W / scale).astype(np.int8),
        "quantize with a scale for each channel",
    )


# 18.5


def _aligned(
    rng: np.random.Generator, samples: int, channels: int, n: int, up: bool = False
) -> tuple[Any, Any, float, Any]:
    """Draw x and W whose rounding errors all have the same sign.

    The numbers are just below half a step; with `up`, they are a few steps and just above half a step.
    """
    x_scale, W_scale = float(rng.uniform(0.01, 2)), rng.uniform(0.01, 2, channels)
    most, part = (4, 0.501) if up else (120, 0.499)
    x = (rng.integers(1, most, (samples, n)) + part) * x_scale
    W = (rng.integers(1, most, (channels, n)) + part) * W_scale[:, None]
    return x, W, x_scale, W_scale


def _quantized(student: Any, x: Any, W: Any, x_scale: float, W_scale: Any, tight: bool) -> None:
    near_x, near_W = np.rint(x / x_scale) * x_scale, np.rint(W / W_scale[:, None]) * W_scale[:, None]
    off = np.abs(near_x @ near_W.T - x @ W.T)
    what = f"quantization_bound, x {x.shape}, W {W.shape}"
    got = numbers(own_answer(student, "quantization_bound", x, W, x_scale, W_scale), what, f"shape {off.shape}")
    equal(got.shape, off.shape, f"the shape of {what}")
    true(
        (got >= off * (1 - 1e-9)).all(),
        what,
        "a bound that holds",
        f"errors up to {np.max(off / got):.3g} times the bound",
    )
    if tight:
        wide = np.max(got / off)
        true(
            wide <= TOO_WIDE,
            what,
            f"at most {TOO_WIDE:g} times the error, if all rounding errors have the same sign",
            f"{wide:.3g} times",
        )


@LAB.check("18.5", "the bound holds and is not ten times too wide", points=2, visible=True)
def quantization(student: Any, rng: np.random.Generator) -> None:
    _quantized(student, *_aligned(rng, 4, 3, 16), tight=True)
    _quantized(student, *_aligned(rng, 3, 5, 8, up=True), tight=True)
    x, W, x_scale, W_scale = _aligned(rng, 4, 3, 16)
    _quantized(student, -x, W, x_scale, W_scale, tight=True)
    _quantized(student, rng.standard_normal((4, 9)), rng.standard_normal((5, 9)), 0.1, np.full(5, 0.02), tight=False)


@LAB.check("18.5", "many terms, steps of all sizes")
def quantization_odd(student: Any, rng: np.random.Generator) -> None:
    for shape in ((1, 1, 1), (3, 7, 200), (5, 4, 4)):
        x, W, x_scale, W_scale = _aligned(rng, *shape, up=shape[0] > 3)
        _quantized(student, x, -W, x_scale, W_scale, tight=True)
        signs = rng.choice([-1.0, 1.0], x.shape[1])
        _quantized(student, x * signs, W * signs, x_scale, W_scale, tight=True)
    x, W, x_scale, W_scale = _aligned(rng, 4, 5, 8)
    _quantized(student, x * 1e-3, W, x_scale, W_scale, tight=False)  # the weights' steps alone would be too few
    _quantized(student, x, W * 1e-3, x_scale, W_scale, tight=False)


@LAB.check("18.5", "the gain of one scale per channel", points=2, visible=True)
def gains(student: Any, rng: np.random.Generator) -> None:
    for spread in (1.0, 10.0, 100.0):
        W = rng.standard_normal((24, 500)) * np.geomspace(1, spread, 24)[:, None]
        got = float(numbers(student.gain(W), f"gain, filters of sizes 1 to {spread:g}", "a number"))
        errors = []
        for axis in (None, (1,)):
            scale = np.abs(W).max(axis=axis, keepdims=True) / 127
            errors.append(np.mean((np.rint(W / scale) * scale - W) ** 2))
        measured = errors[0] / errors[1]
        what = f"gain, filters of sizes 1 to {spread:g}"
        true(abs(got / measured - 1) <= 0.15, what, f"within 15 % of {measured:.4g}, as measured", f"{got:.4g}")
    W = np.array([[1.27, 0.0], [0.0, -12.7], [0.127, 0.1]])
    close(student.gain(W), 0.01 / ((1e-4 + 1e-2 + 1e-6) / 3), "gain of scales 0.01, 0.1 and 0.001")


# 18.6


def _jumps(student: Any, W: Any, slopes: Any, axis: int | None) -> None:
    found = []
    for a in slopes:
        folded = (W.T * a).T
        kept = None if axis is None else tuple(range(1, W.ndim))
        scale = np.abs(folded).max(axis=kept, keepdims=True) / 127
        found.append(np.clip(np.rint(folded / scale), -127, 127))
    expected = [int((a != b).sum()) for a, b in itertools.pairwise(found)]
    what = f"jumps, W {W.shape}, {len(slopes)} batches, axis {axis}"
    close(own_answer(student, "jumps", W, slopes, axis), np.array(expected), what, rtol=0, atol=0)


@LAB.check("18.6", "one scale for all, and one for each channel", points=2, visible=True)
def jump(student: Any, rng: np.random.Generator) -> None:
    W, slopes = rng.standard_normal((4, 30)), rng.uniform(0.8, 1.2, (5, 4))
    for axis in (None, 0):
        _jumps(student, W, slopes, axis)


@LAB.check("18.6", "filters, frozen statistics, changing signs")
def jump_odd(student: Any, rng: np.random.Generator) -> None:
    W = rng.standard_normal((3, 2, 3, 3))
    frozen = np.repeat(rng.uniform(0.5, 2, (1, 3)), 4, axis=0)
    signs = frozen * np.array([[1, 1, 1], [-1, 1, 1], [-1, -1, 1], [1, 1, 1]])
    for slopes in (frozen, signs, np.geomspace(0.01, 100, 6)[:, None] * np.ones(3), rng.uniform(0.1, 3, (2, 3))):
        for axis in (0, None):
            _jumps(student, W, slopes, axis)


LAB.provide("18.1", fold=right.fold)
LAB.provide(
    "18.4",
    scale_and_zero=right.scale_and_zero,
    quantize=right.quantize,
    dequantize=right.dequantize,
    weight_scales=right.weight_scales,
)
LAB.recognizer = mistakes.RECOGNIZER
