"""Lab 1: compares five norms with formulas in float64, which this file computes separately."""

from __future__ import annotations

from typing import Any

import numpy as np

import minorm.functional as F
from minorm.kernels.partial import PartialBackend
from minorm.labs.checks.mistakes import lab01_forward as mistakes
from minorm.labs.checks.variants.lab01_forward import V, laid, rstd
from minorm.labs.comparing import close, parts
from minorm.labs.lab import Lab
from minorm.tensor.creation import tensor

LAB = Lab(
    1,
    "lab01_forward",
    "Forward",
    "How much code do all five norms need? One function.",
    minutes=75,
    needs=(0,),
    variants=V,
)


def _moments(x: Any, axes: tuple[int, ...], centered: bool = True) -> tuple[Any, Any]:
    """Compute mean and variance by sums, one row after the other."""
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    rows = x.astype(np.float64).transpose(*kept, *axes).reshape(*(x.shape[i] for i in kept), -1)
    mean = rows.sum(-1) / rows.shape[-1] if centered else 0 * rows.sum(-1)
    var = ((rows - mean[..., None]) ** 2).sum(-1) / rows.shape[-1]
    shape = [1 if i in axes else n for i, n in enumerate(x.shape)]
    return mean.reshape(shape), var.reshape(shape)


def _norm(x: Any, axes: tuple[int, ...], eps: float, centered: bool = True) -> Any:
    mean, var = _moments(x, axes, centered)
    return (x - mean) * rstd(var, eps)


def _data(rng: np.random.Generator, *shape: int) -> Any:
    """Draw data with a mean other than 0. Some variances are so small that eps matters."""
    return rng.standard_normal(shape) * rng.uniform(0.02, 2, shape[1:]) + rng.uniform(-3, 3)


@LAB.check("1.1", "mean and variance", points=2, visible=True)
def moments(student: Any, rng: np.random.Generator) -> None:
    row = np.array([[1.0, 2.0, 3.0, 6.0]])
    for x, axes in ((row, (1,)), (_data(rng, 3, 5, 7), (0, 2)), (_data(rng, 3, 5, 7), (2,))):
        what = f"of shape {x.shape} over {axes}"
        mean, var = parts(student.moments(x, axes), 2, f"moments of an array {what}")
        close(mean, _moments(x, axes)[0], f"the mean of an array {what}")
        close(var, _moments(x, axes)[1], f"the variance of an array {what}")


@LAB.check("1.1", "without centering", visible=True)
def mean_square(student: Any, rng: np.random.Generator) -> None:
    x = _data(rng, 4, 6)
    mean, var = parts(student.moments(x, (1,), centered=False), 2, "moments(x, (1,), centered=False)")
    close(mean, np.zeros((4, 1)), "the mean with centered=False")
    close(var, (x * x).sum(1, keepdims=True) / 6, "the variance with centered=False")


@LAB.check("1.1", "odd shapes")
def odd_moments(student: Any, rng: np.random.Generator) -> None:
    for shape, axes in (((1, 1), (0,)), ((2, 3, 1, 5), (0, 2, 3)), ((2, 2, 3, 2, 3), (1, 3)), ((7,), (0,))):
        x = rng.standard_normal(shape) + 2
        mean, var = parts(student.moments(x, axes), 2, f"moments, shape {shape}, axes {axes}")
        close(mean, _moments(x, axes)[0], f"the mean, shape {shape}, axes {axes}")
        close(var, _moments(x, axes)[1], f"the variance, shape {shape}, axes {axes}")


@LAB.check("1.2", "xhat", points=2, visible=True)
def xhat(student: Any, rng: np.random.Generator) -> None:
    for shape, axes in (((4, 3, 5), (0, 2)), ((4, 3, 5), (1, 2)), ((2, 3, 4, 5), (2, 3))):
        x = _data(rng, *shape)
        close(student.normalize(x, axes), _norm(x, axes, V.eps), f"normalize, shape {shape}, axes {axes}")


@LAB.check("1.2", "the place of eps")
def eps_inside(student: Any, rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 50)) * 0.01
    close(student.normalize(x, (1,)), _norm(x, (1,), V.eps), "normalize of small numbers")
    for eps in (1e-3, 0.1):
        close(student.normalize(x, (1,), eps), _norm(x, (1,), eps), f"normalize of small numbers with eps={eps:g}")


@LAB.check("1.2", "rows of equal numbers; without centering")
def equal_numbers(student: Any, rng: np.random.Generator) -> None:
    close(student.normalize(np.full((2, 4), 3.0), (1,)), np.zeros((2, 4)), "normalize of rows of equal numbers")
    x = _data(rng, 3, 4)
    close(student.normalize(x, (1,), 1e-5, False), _norm(x, (1,), 1e-5, False), "normalize with centered=False")


@LAB.check("1.3", "scale and bias", points=2, visible=True)
def affine(student: Any, rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3, 4, 5))
    s, b = rng.standard_normal((2, 3))
    close(
        student.affine(x, s, b, 1),
        np.einsum("nchw,c->nchw", x, s) + b[:, None, None],
        "affine with s and b (3), axis 1",
    )
    s, b = rng.standard_normal((2, 4, 5))
    close(student.affine(x, s, b, 2), x * s + b, "affine with s and b (4, 5), axis 2")
    close(student.affine(x, None, None, 1), x, "affine without s and b")


@LAB.check("1.3", "scale or bias alone, equal lengths")
def affine_halves(student: Any, rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 3, 3))
    s = rng.standard_normal(3)
    close(student.affine(x, s, None, 1), np.einsum("ncl,c->ncl", x, s), "affine of 3x3x3 with s alone, axis 1")
    close(student.affine(x, None, s, 1), x + s[None, :, None], "affine of 3x3x3 with b alone, axis 1")
    close(student.affine(x, None, s, 2), x + s, "affine of 3x3x3 with b alone, axis 2")


def _five_norms(student: Any, rng: np.random.Generator, shape: tuple[int, ...], groups: int, eps: float) -> None:
    """Check all five norms on one shape. If x has no positions, instance and group normalization are left out."""
    x, ndim, of = _data(rng, *shape), len(shape), f"x of shape {shape}, eps={eps:g}"
    s, b = rng.standard_normal((2, shape[1]))
    along = (shape[1],) + (1,) * (ndim - 2)
    s1, b1 = s.reshape(along), b.reshape(along)
    mine = laid(x)
    of_mine = f"x of shape {mine.shape}, eps={eps:g}"
    expected = laid(_norm(x, (0, *range(2, ndim)), eps) * s1 + b1)
    close(student.batch_norm(mine, s, b, eps), expected, f"batch_norm, {of_mine}", rtol=1e-8, atol=1e-9)
    if ndim > 2:
        expected = laid(_norm(x, tuple(range(2, ndim)), eps) * s1 + b1)
        close(student.instance_norm(mine, s, b, eps), expected, f"instance_norm, {of_mine}", rtol=1e-8, atol=1e-9)
        split = x.reshape(shape[0], groups, -1)
        expected = laid(_norm(split, (2,), eps).reshape(shape) * s1 + b1)
        close(student.group_norm(mine, groups, s, b, eps), expected, f"group_norm, {of_mine}", rtol=1e-8, atol=1e-9)
    for last in {1, ndim - 1}:
        trailing, reduced = shape[-last:], tuple(range(ndim - last, ndim))
        s, b = rng.standard_normal((2, *trailing))
        of_shape = f"normalized_shape={trailing}, {of}"
        expected = _norm(x, reduced, eps) * s + b
        close(student.layer_norm(x, trailing, s, b, eps), expected, f"layer_norm, {of_shape}", rtol=1e-8, atol=1e-9)
        expected = _norm(x, reduced, eps, False) * s
        close(student.rms_norm(x, trailing, s, eps), expected, f"rms_norm, {of_shape}", rtol=1e-8, atol=1e-9)


@LAB.check("1.4", "five norms of images", points=2, visible=True)
def five_of_images(student: Any, rng: np.random.Generator) -> None:
    _five_norms(student, rng, (3, 6, 4, 5), 3, 1e-5)


@LAB.check("1.4", "five norms of odd shapes", points=3)
def five_of_odd_shapes(student: Any, rng: np.random.Generator) -> None:
    for shape, groups in (((5, 4, 3), 2), ((2, 4, 1, 3), 4), ((2, 6, 2, 3, 2), 1), ((7, 3), 1)):
        _five_norms(student, rng, shape, groups, 1e-2)


@LAB.check("1.4", "without scale and bias")
def five_without(student: Any, rng: np.random.Generator) -> None:
    x = _data(rng, 3, 4, 5)
    close(student.batch_norm(laid(x)), laid(_norm(x, (0, 2), V.eps)), "batch_norm(x)", rtol=1e-8, atol=1e-9)
    close(student.instance_norm(laid(x)), laid(_norm(x, (2,), V.eps)), "instance_norm(x)", rtol=1e-8, atol=1e-9)
    close(student.layer_norm(x, (5,)), _norm(x, (2,), V.eps), "layer_norm(x, (5,))", rtol=1e-8, atol=1e-9)
    close(student.rms_norm(x, (4, 5)), _norm(x, (1, 2), V.eps, False), "rms_norm(x, (4, 5))", rtol=1e-8, atol=1e-9)


LAYERS = ("batch_norm", "channels-last batch_norm", "group_norm", "layer_norm", "rms_norm", "mean_variance_norm")


def _run(layer: str, x: Any, s: Any, b: Any, backend: Any) -> tuple[Any, ...]:
    """Run a normalization of minorm.functional with this backend; return y, mean, var and dx."""
    if layer.startswith("channels-last"):
        x = np.moveaxis(np.moveaxis(x, 1, -1).copy(), -1, 1)
    from_x = tensor(x)
    from_x.requires_grad = True
    weight, bias = tensor(s), tensor(b)
    mean, var = tensor(np.zeros(x.shape[1])), tensor(np.ones(x.shape[1]))
    if layer.endswith("batch_norm"):
        y = F.batch_norm(from_x, mean, var, weight, bias, True, backend=backend)
    elif layer == "group_norm":
        y = F.group_norm(from_x, 2, weight, bias, backend=backend)
    elif layer == "layer_norm":
        y = F.layer_norm(from_x, x.shape[2:], backend=backend)
    elif layer == "rms_norm":
        y = F.rms_norm(from_x, x.shape[1:], eps=1e-5, backend=backend)
    else:
        y = F.mean_variance_norm(from_x, backend=backend)
    y.backward(tensor(np.cos(np.arange(x.size, dtype=x.dtype)).reshape(x.shape)))
    return y.array, mean.array, var.array, from_x.grad.array if from_x.grad is not None else None


def _in_layers(student: Any, rng: np.random.Generator, layers: tuple[str, ...], shape: tuple[int, ...]) -> None:
    for layer in layers:
        x = _data(rng, *shape)
        s, b = rng.standard_normal((2, shape[1]))
        answers = _run(layer, x, s, b, PartialBackend(forward=student.forward))
        for name, got, expected in zip(
            ("y", "running mean", "running var", "dx"), answers, _run(layer, x, s, b, None), strict=True
        ):
            close(got, expected, f"{name} of {layer} with your forward, x of shape {shape}", rtol=1e-7, atol=1e-9)


@LAB.check("1.5", "your forward in BatchNorm", points=2, visible=True)
def in_batch_norm(student: Any, rng: np.random.Generator) -> None:
    _in_layers(student, rng, LAYERS[:1], (3, 4, 5, 2))


@LAB.check("1.5", "your forward in five other layers", points=2)
def in_others(student: Any, rng: np.random.Generator) -> None:
    _in_layers(student, rng, LAYERS[1:], (2, 4, 3, 5))


def _normalize(x: Any, axes: tuple[int, ...], eps: float | None = None, centered: bool = True) -> Any:
    return _norm(x, axes, V.eps if eps is None else eps, centered)


def _affine(xhat: Any, s: Any, b: Any, axis: int) -> Any:
    def along(v: Any) -> Any:
        return v.reshape(v.shape + (1,) * (xhat.ndim - axis - v.ndim))

    y = xhat if s is None else xhat * along(s)
    return y if b is None else y + along(b)


LAB.provide("1.1", moments=_moments)
LAB.provide("1.2", normalize=_normalize)
LAB.provide("1.3", affine=_affine)
LAB.recognizer = mistakes.RECOGNIZER
