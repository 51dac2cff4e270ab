"""Every operation on CuPy arrays: the results and gradients of the CPU, on the device, without a word to the host.

Functionals are those of tests/test_layouts.py, with its cases; what Tensors do besides is listed here.
"""

from __future__ import annotations

import importlib.util
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import normalization, ops
from minorm.autograd import grad
from minorm.functional import recurrent
from minorm.functional.einsum import einsum
from minorm.functional.quantization import dequantize, quantize
from minorm.functional.sampling import affine_grid, grid_sample
from minorm.graph.gradient_probe import GradientProbe
from minorm.graph.graph import Function
from minorm.ops import (
    activation,
    convolution,
    elementary,
    quantization,
    reduction,
    response,
    scatter,
    special,
    stepwise,
)
from minorm.ops.shape import Unbind


def _table() -> Any:
    path = Path(__file__).parents[1] / "test_layouts.py"
    specification = importlib.util.spec_from_file_location("layouts", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


layouts = _table()
CLOSE = {mn.float64: 1e-10, mn.float32: 3e-5, mn.float16: 5e-3, mn.bfloat16: 4e-2}

Case = tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]


def _in_place(x: mn.Tensor, y: mn.Tensor) -> mn.Tensor:
    row, turned = x[1], x.T
    x += y
    x *= y * y + 1
    row -= y[0] if y.ndim > 1 else y
    turned /= 2
    x.clamp_(-1.5, 1.5).add_(y, alpha=2)
    return x + row + turned.T


def _by_position(x: mn.Tensor, y: mn.Tensor) -> mn.Tensor:
    x[0] += 1
    x[1:, ::2] = y[::2] * 2
    x[mn.tensor([0, 2]).to(x.device)] *= y
    x[3].zero_()
    x[2].copy_(y)
    return x


def _cast_for_a_convolution(a: mn.Tensor) -> mn.Tensor:
    other = mn.float32 if a.dtype == mn.float64 else mn.float64
    return convolution.CastLaidOut.apply(a, dtype=other).to(a.dtype) * 2


def _penalty(x: mn.Tensor, w: mn.Tensor, s: mn.Tensor) -> mn.Tensor:
    """Return the squared norm of the gradients of a convolution with a normalization behind it."""
    y = F.relu(F.group_norm(F.conv2d(x, w), 2, s))
    dx, dw = grad((y * y * y).sum(), (x, w), create_graph=True)
    return (dx * dx).sum() + (dw * dw).sum()


ARCS = elementary.Asin, elementary.Acos, elementary.Atanh
HYPERBOLIC = elementary.Sinh, elementary.Cosh, elementary.Asinh
BY_THE_HOST: dict[str, Case] = {
    "determinant": (special.Determinant.apply, ((2, 3, 3),)),
    "fourier": (lambda a: special.Fourier.apply(a, axis=1, inverse=False), ((3, 8, 2),)),
    "fourier back": (lambda a: special.Fourier.apply(a, axis=1, inverse=True), ((3, 8, 2),)),
}
OPERATIONS: dict[str, Case] = {
    "add": (lambda a, b: a + b, ((4, 5), (5,))),
    "sub": (lambda a, b: a - b, ((4, 5), (4, 1))),
    "mul": (lambda a, b: a * b, ((4, 5), (1, 5))),
    "div": (lambda a, b: a / (b * b + 1), ((4, 5), (5,))),
    "pow": (lambda a, b: (a * a + 0.5) ** b, ((4, 5), (5,))),
    "pow of a number": (lambda a: a**3 + 2**a, ((4, 5),)),
    "scalars": (lambda a: (1 - a * 2) / 3 + np.float32(1), ((4, 5),)),
    "neg, abs": (lambda a: -a.abs(), ((4, 5),)),
    "exp, log, sqrt": (lambda a: (a.exp() + 1).log().sqrt(), ((4, 5),)),
    "sin, cos": (lambda a: a.sin() * a.cos(), ((4, 5),)),
    "clip": (lambda a: a.clip(-0.5, 0.5) + a.clip(min=0) + a.clip(max=0), ((4, 5),)),
    "maximum, minimum": (lambda a, b: mn.maximum(a, b) - mn.minimum(a, b * 2), ((4, 5), (5,))),
    "ties": (lambda a: mn.maximum(a, a) + mn.minimum(a, a), ((4, 5),)),
    "where": (lambda a, b: mn.where(a > b, a, b * 2), ((4, 5), (5,))),
    "comparisons": (lambda a, b: a * (a >= b).to(a.dtype) + (a == b).to(a.dtype), ((4, 5), (5,))),
    "cast for a convolution": (_cast_for_a_convolution, ((2, 3, 4, 5),)),
    "matmul": (lambda a, b: a @ b, ((3, 4, 5), (5, 6))),
    "matmul of stacks": (lambda a, b: a @ b, ((3, 4, 5), (3, 5, 2))),
    "matmul of vectors": (lambda a, b: a @ b, ((5,), (5,))),
    "matmul, matrix and vector": (lambda a, b, c: (a @ b) * c, ((4, 5), (5,), (4,))),
    "sum": (lambda a: a.sum(1) + a.sum(), ((4, 5, 3),)),
    "mean": (lambda a: a.mean((0, 2), keepdim=True) * a.mean(), ((4, 5, 3),)),
    "var, std": (lambda a: a.var(1) + a.std(1, unbiased=False), ((4, 5),)),
    "amax, amin": (lambda a: a.amax(1) - a.amin((0, 1)), ((4, 5),)),
    "max, min": (lambda a: a.max() - a.min(), ((4, 5),)),
    "max with places": (lambda a: a.max(1).values + a.min(1).indices.to(a.dtype), ((4, 5),)),
    "prod": (lambda a: reduction.Prod.apply(a, axes=(1,), keepdims=False), ((3, 4, 2),)),
    "logsumexp": (lambda a: reduction.LogSumExp.apply(a, axes=(1, 2), keepdims=True), ((3, 4, 2),)),
    "logsumexp of nothing": (lambda a: reduction.LogSumExp.apply(a, axes=(1,), keepdims=False), ((3, 0),)),
    "cumsum": (lambda a: reduction.CumSum.apply(a, axis=1, exclusive=True, reverse=True), ((3, 4),)),
    "argmax, argmin": (lambda a: a * (a.argmax(1, keepdim=True) + a.argmin()).to(a.dtype), ((4, 5),)),
    "top places": (lambda a: a.gather(1, reduction.TopPlaces.apply(a, count=2, axis=1, largest=True)), ((4, 5),)),
    "lowest places": (lambda a: a.gather(1, reduction.TopPlaces.apply(a, count=2, axis=1, largest=False)), ((4, 5),)),
    "reshape, permute": (lambda a: a.reshape(5, 4, 3).permute(2, 0, 1).flatten(1).T, ((4, 5, 3),)),
    "expand, repeat": (lambda a: a.expand(3, 4, 5).repeat(2, 1, 1) + a.repeat(1, 1), ((4, 5),)),
    "repeat never": (lambda a: a.repeat(0, 2), ((4, 5),)),
    "flip": (lambda a: a.flip(0, 1), ((4, 5),)),
    "in place": (lambda a, b: _in_place(a * 1, b), ((4, 5), (5,))),
    "in place, a buffer": (lambda a, b: _in_place(mn.zeros_like(a.detach()), a + b), ((4, 5), (5,))),
    "in place, by position": (lambda a, b: _by_position(a * 1, b), ((4, 5), (5,))),
    "floor, remainder, bits": (
        lambda a, b: a * ((a // 0.7 % 2 > 0) & (b < 1) | ~(a > b) ^ (b > 0)).to(a.dtype),
        ((4, 5), (5,)),
    ),
    "cat, stack": (lambda a, b: mn.stack([mn.cat([a, b]), mn.cat([b, a])], 1), ((2, 5), (3, 5))),
    "pad": (lambda a: mn.pad(a, (1, -2, 0, 3), 2.5), ((4, 5),)),
    "split, chunk, unbind": (lambda a: a.split(2, 1)[1] * a.chunk(3, 1)[0] + a.unbind(1)[0].unsqueeze(1), ((4, 5),)),
    "unbind at once": (lambda a: sum(Unbind.apply(a, axis=1)[1:], a[:, 0]), ((4, 5),)),
    "index": (lambda a: a[1:, ::2] + a[0, None, -1], ((4, 5),)),
    "index by an array": (lambda a: a[mn.tensor([0, 2, 0, -1]).to(a.device)] * 2, ((4, 5),)),
    "index by NumPy's array": (lambda a: a[:, np.array([0, 2, 0])], ((4, 5),)),
    "index by two arrays": (
        lambda a: a[mn.tensor([[0], [2]]).to(a.device), mn.tensor([1, 1, 4]).to(a.device)], ((4, 5),)
    ),
    "gather": (lambda a: a.gather(1, mn.tensor([[0, 0, 4], [1, 2, 1]]).to(a.device)), ((4, 5),)),
    "gather along the first axis": (lambda a: a.gather(0, mn.tensor([[0, 0, 3], [1, 2, 1]]).to(a.device)), ((4, 5),)),
    "types": (lambda a: a.double().to(a.dtype) * a.detach().long().to(a.dtype), ((4, 5),)),
    "clone, contiguous": (lambda a: a.clone().T.contiguous(), ((4, 5),)),
    "erf": (lambda a: special.Erf.apply(a) + 0, ((4, 5),)),
    "remainder": (lambda a, b: special.Remainder.apply(a, b * b + 1, truncated=False), ((4, 5), (4, 5))),
    "truncated remainder": (lambda a, b: special.Remainder.apply(a, b * b + 1, truncated=True), ((4, 5), (4, 5))),
    "steps": (lambda a: sum((stepwise.Stepwise.apply(a * 3, step=s).to(a.dtype) for s in STEPS), a), ((4, 5),)),
    "quotient": (lambda a: a + stepwise.Quotient.apply((a * 9).long(), (a * 3).long() * 2 + 1).to(a.dtype), ((4, 5),)),
    "negative slopes": (lambda a: activation.Elu.apply(a, alpha=0.7), ((4, 5),)),
    "normalize zeros": (lambda a: response.LpNormalize.apply(a * 0, p=2.0, axis=1, eps=0.0), ((4, 5),)),
    **{
        f"scatter, {how}": (
            lambda a, b, how=how: scatter.ScatterElements.apply(a, places(a), b, reduction=how, axis=0),
            ((4, 3), (2, 3)),
        )
        for how in ("none", "add", "mul", "min", "max")
    },
    "scatter rows": (lambda a, b: scatter.ScatterND.apply(a, places(a)[:, :1], b, reduction="add"), ((4, 3), (2, 3))),
    "diagonal": (lambda x: x.diagonal(1), ((3, 4),)),
    "einsum": (lambda a, b: einsum("iij,...kj->...ik", a, b), ((3, 3, 4), (2, 5, 4))),
    "grid sample": (
        lambda a, b: sum(grid_sample(a, b, mode, "reflection") for mode in ("bilinear", "nearest", "bicubic")),
        ((2, 3, 4, 5), (2, 3, 2, 2)),
    ),
    "affine grid": (lambda a: affine_grid(a, (2, 1, 3, 4)), ((2, 2, 3),)),
    "fake quantize": (lambda a: F.fake_quantize_per_tensor_affine(a, step(a), 1, -3, 4), ((4, 5),)),
    "quantize": (
        lambda a: dequantize(quantize(a, step(a), dtype=mn.int8), step(a)) + dequantize(
            quantize(a, step(a).expand(5) * 1, axis=1), step(a).expand(5) * 1), ((4, 5),)
    ),
    "asin, acos, atanh": (lambda a: sum(kind.apply(a.tanh() * 0.9) for kind in ARCS), ((4, 5),)),
    "sinh, cosh, asinh": (lambda a: sum(kind.apply(a) for kind in HYPERBOLIC), ((4, 5),)),
    "acosh": (lambda a: elementary.Acosh.apply(a * a + 1.5), ((4, 5),)),
    "atan, log1p, expm1": (lambda a: a.atan() + (a * a).log1p() * a.expm1(), ((4, 5),)),
    "erfinv": (lambda a: (a.tanh() * 0.99).erfinv(), ((4, 5),)),
    "logit": (lambda a: a.sigmoid().logit() + (a * 0.5).logit(0.2), ((4, 5),)),
    "atan2": (lambda a, b: a.atan2(b), ((4, 5), (5,))),
    "logaddexp": (lambda a, b: a.logaddexp(b * 3), ((4, 5), (4, 1))),
    "xlogy": (lambda a, b: a.xlogy(b * b + 0.1), ((4, 5), (5,))),
    "scatter_reduce": (
        lambda a, b: sum(
            a.scatter_reduce(0, places(a), b, how, include_self=itself)
            for how in ("sum", "mean", "amax", "amin") for itself in (True, False)
        ),
        ((4, 3), (2, 3)),
    ),
    "index_put": (
        lambda a, b: a.index_put((places(a),), b) + a.index_put((None, places(a) % 5), b[0, 0, 0], accumulate=True),
        ((4, 5), (2, 3, 5)),
    ),
    "masked_scatter": (lambda a, b: a.masked_scatter(a > 0, b), ((4, 5), (20,))),
    "unfold": (lambda a: a.unfold(1, 3, 1) * 2, ((4, 5),)),
    "diff": (lambda a, b: a.diff(n=2, dim=0, prepend=b), ((4, 5), (1, 5))),
    "diag_embed": (lambda a: a.diag_embed(1, 0, 2) + 0, ((4, 5),)),
    "nansum, nanmean": (lambda a: a.log().nansum(1) + a.log().nanmean(0, keepdim=True)[:, :4], ((4, 5),)),
    "var_mean, std_mean": (lambda a: sum((*mn.var_mean(a, 1), *mn.std_mean(a, 1))), ((4, 5),)),
    "tensor_split": (lambda a: a.tensor_split(3, 1)[1] * 2, ((4, 5),)),
    "searched": (lambda a, b: a + a.detach() * searched(a.detach(), b.detach()), ((4, 5), (4, 9))),
    "sign": (lambda a: a * a.sign(), ((4, 5),)),
    "cumprod": (lambda a: a.cumprod(1), ((4, 5),)),
    "histogram": (lambda a: a + a.detach().histc(5, -2, 2), ((4, 5),)),
    "floor division": (lambda a: a * (a // 0.3), ((4, 5),)),
    "log of probabilities": (lambda a, b: F.binary_cross_entropy(a.sigmoid(), b.sigmoid()), ((4, 5), (4, 5))),
    "penalty on a gradient": (_penalty, ((2, 3, 5, 5), (4, 3, 2, 2), (4,))),
    "crossing": (lambda a: GradientProbe.apply(a, told=lambda gradients: gradients) * 2, ((4, 5),)),
    "rnn": (lambda x, w, r: recurrent.rnn(x, None, w, r, direction="reverse")[0], ((3, 2, 4), (1, 5, 4), (1, 5, 5))),
    "gru": (lambda x, w, r, b: recurrent.gru(x, None, w, r, b)[0], ((3, 2, 4), (1, 15, 4), (1, 15, 5), (1, 30))),
    "lstm": (
        lambda x, w, r, p: recurrent.lstm(x, None, w, r, peephole=p, clip=0.9, lengths=mn.tensor([3, 2]),
                                          direction="bidirectional")[0],
        ((3, 2, 4), (2, 20, 4), (2, 20, 5), (2, 15)),
    ),
}  # fmt: skip
STEPS = ("floor", "ceil", "rint", "sign", "isnan", "isinf", "logical_not")
SLOW = [pytest.param(dtype, marks=pytest.mark.slow) for dtype in (mn.float64, mn.float16)]  # kernels to compile
DTYPES = [mn.float32, mn.bfloat16, *SLOW]


def places(like: mn.Tensor) -> mn.Tensor:
    """Return the rows to scatter to, one of them twice."""
    return mn.tensor([[0, -1, 2], [3, -1, 1]]).to(like.device)


def searched(x: mn.Tensor, others: mn.Tensor) -> mn.Tensor:
    """Add up the places of x among the sorted others, and whether x is one of them."""
    order = mn.cat([others, x[:, :1]], 1).sort(1).values
    found = mn.searchsorted(order, x, right=True) + mn.searchsorted(order[0], x) + mn.bucketize(x, order[1])
    return (found + mn.isin(x, order[2:])).to(x.dtype)


def step(like: mn.Tensor) -> mn.Tensor:
    """Return a scale so small that some numbers are cut off."""
    return mn.tensor(0.0078125, dtype=like.dtype).to(like.device)


def place(dtype: Any) -> str:
    """The device to compute on: for one type the second, which is never the current one."""
    return "cuda:1" if dtype == mn.bfloat16 else "cuda:0"


def results(function: Callable[..., Any], arrays: list[np.ndarray], device: str, kinds: list[str]) -> list[Any]:
    """Outputs, gradients, and the arguments as they are afterwards."""
    inputs = [
        mn.tensor(array, device=device, requires_grad=kind == "number")
        for array, kind in zip(arrays, kinds, strict=True)
    ]
    found = function(*inputs)
    outputs = found if isinstance(found, tuple) else (found,)
    rng = np.random.default_rng(9)
    gradient = rng.standard_normal(outputs[0].shape).astype(outputs[0].dtype)
    outputs[0].backward(mn.tensor(gradient, device=device))
    for x in (*outputs, *(x.grad for x in inputs if x.grad is not None)):
        assert x.device == device
    return [
        *outputs,
        *(x.grad for x in inputs),
        *(x for x, kind in zip(inputs, kinds, strict=True) if kind != "number"),
    ]


def check(found: list[Any], expected: list[Any], dtype: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        if other is None:
            assert one is None
            continue
        a, b = one.detach().cpu().numpy(), other.detach().numpy()
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if b.dtype not in CLOSE:
            np.testing.assert_array_equal(a, b)
            continue
        close = CLOSE[dtype]
        a, b = a.astype(np.float64), b.astype(np.float64)
        np.testing.assert_allclose(a, b, rtol=close, atol=close * max(1.0, abs(b).max(initial=0, where=np.isfinite(b))))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", OPERATIONS)
def test_operation(name: str, dtype: Any, cuda: Any) -> None:
    function, shapes_of = OPERATIONS[name]
    rng = np.random.default_rng(7)
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in shapes_of]
    kinds = ["number"] * len(arrays)
    expected = results(function, arrays, "cpu", kinds)
    cuda.transfers.clear()
    found = results(function, arrays, place(dtype), kinds)
    assert (cuda.transfers.to_host, cuda.transfers.atomics) == (0, 0)
    check(found, expected, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", layouts.CASES)
def test_functional(name: str, dtype: Any, cuda: Any) -> None:
    function, arguments = layouts.CASES[name]
    arrays = [argument.values(i, dtype) for i, argument in enumerate(arguments)]
    kinds = [argument.kind for argument in arguments]
    expected = results(function, arrays, "cpu", kinds)
    cuda.transfers.clear()
    found = results(function, arrays, place(dtype), kinds)
    assert (cuda.transfers.to_host, cuda.transfers.atomics) == (0, 0)
    check(found, expected, dtype)


def seconds(function: Callable[..., Any], arrays: list[np.ndarray], device: str, kinds: list[str]) -> list[Any]:
    """The second gradients, of a sum of squares of the first."""
    inputs = [
        mn.tensor(array, device=device, requires_grad=kind == "number")
        for array, kind in zip(arrays, kinds, strict=True)
    ]
    leaves = [x for x in inputs if x.requires_grad]
    found = function(*inputs)
    y = found[0] if isinstance(found, tuple) else found
    first = grad((y * y).sum(), leaves, create_graph=True, allow_unused=True)
    ends = [g for g in first if g is not None and g.requires_grad]
    if not ends:
        return list(first)
    return [*first, *grad([(g * g).sum() for g in ends], leaves, allow_unused=True)]


ON_THE_HOST = {"scatter, mul"}  # which factors meet at a place is found out there
LONG = {"grid sample", "lstm"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in (*OPERATIONS, *layouts.CASES)],
)
def test_second_gradients(name: str, cuda: Any) -> None:
    if name in OPERATIONS:
        function, shapes_of = OPERATIONS[name]
        arrays = [np.random.default_rng(7).standard_normal(shape) for shape in shapes_of]
        kinds = ["number"] * len(arrays)
    else:
        function, arguments = layouts.CASES[name]
        arrays = [argument.values(i, mn.float64) for i, argument in enumerate(arguments)]
        kinds = [argument.kind for argument in arguments]
    expected = seconds(function, arrays, "cpu", kinds)
    cuda.transfers.clear()
    found = seconds(function, arrays, "cuda:0", kinds)
    assert cuda.transfers.atomics == 0
    assert cuda.transfers.to_host == 0 or name in ON_THE_HOST
    assert all(x is None or x.device == "cuda:0" for x in found)
    check(found, expected, mn.float64)


def test_a_mask_is_counted_once(cuda: Any) -> None:
    """How many elements a mask takes, the host has to know: that is its one question."""
    x = mn.tensor(np.arange(6.0), device="cuda", requires_grad=True)
    mask = x.detach() > 2
    cuda.transfers.clear()
    y = x[mask]
    assert cuda.transfers.to_host == 1
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.cpu().numpy(), [0, 0, 0, 1, 1, 1])


@pytest.mark.usefixtures("cuda")
def test_positions_read_twice_are_added_up_in_one_order() -> None:
    rng = np.random.default_rng(0)
    places, dy = rng.integers(0, 7, 5000), rng.standard_normal((5000, 3)).astype(np.float32) * 1e4
    grads = []
    for _ in range(2):
        x = mn.zeros(7, 3, device="cuda", requires_grad=True)
        x[mn.tensor(places, device="cuda")].backward(mn.tensor(dy, device="cuda"))
        grads.append(x.grad.cpu().numpy())
    np.testing.assert_array_equal(*grads)
    exact = np.zeros((7, 3))
    np.add.at(exact, places, dy.astype(np.float64))
    np.testing.assert_allclose(grads[0], exact, rtol=1e-5, atol=1e-1)


BYTES: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "to integers": (
        quantization.ToIntegers, (np.linspace(-9, 9, 7, dtype=np.float32), np.float32(0.1), np.int8(3)),
        {"dtype": np.dtype(np.int8), "axis": 0, "block": 0},
    ),
    "convolution": (
        quantization.IntegerConvolution,
        (np.arange(50, dtype=np.uint8).reshape(1, 2, 5, 5), np.arange(-18, 18, dtype=np.int8).reshape(2, 2, 3, 3),
         np.uint8(7), np.int8(0), np.array([3, -40], np.int32), np.float32(0.1), np.float32(0.02), np.float32(0.5),
         np.uint8(9)),
        {"form": ((1, 1), ((1, 1), (1, 1)), (1, 1), 1)},
    ),
    "matmul": (
        quantization.IntegerMatMul,
        (np.arange(12, dtype=np.uint8).reshape(3, 4), np.arange(-4, 4, dtype=np.int8).reshape(4, 2), np.uint8(5),
         np.int8(1)), {},
    ),
    "matmul, a scale a row": (
        quantization.IntegerMatMul,
        (np.arange(12, dtype=np.uint8).reshape(3, 4), np.arange(-4, 4, dtype=np.int8).reshape(4, 2), np.uint8(5),
         np.int8(1), None, np.array([0.1, 0.2, 0.3], np.float32), np.float32(0.5), np.float32(0.7), np.uint8(20)), {},
    ),
    "add": (
        quantization.QuantizedAdd,
        (np.arange(9, dtype=np.uint8), np.arange(9, 0, -1, dtype=np.uint8), np.float32(0.1), np.uint8(1),
         np.float32(0.3), np.uint8(2), np.float32(0.2), np.uint8(3)), {"relu": True},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BYTES)
def test_integers(name: str, cuda: Any) -> None:
    """The integers of the CPU, without a gradient where a scale requires one; scales go to the host."""
    if name == "convolution" and not hasattr(cuda, "einsum"):
        pytest.skip("the double has no einsum")
    function, arrays, options = BYTES[name]
    found = []
    for device in ("cpu", "cuda"):
        given = [None if a is None else mn.tensor(np.asarray(a)).to(device) for a in arrays]
        for tensor in given[1:]:
            if tensor is not None and tensor.dtype == mn.float32:
                tensor.requires_grad_()
        y = function.apply(*given, **options)
        assert not y.requires_grad
        assert y.device.type == device
        found.append(y.cpu().numpy())
    assert found[0].dtype == found[1].dtype
    np.testing.assert_array_equal(*found)


def test_every_operation_has_a_case(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Function of minorm.ops is run here, by one of these cases or of those of all functionals; but for eleven
    that speak with the host: ranks are in test_distributed.py, counts in test_device.py, integers above, the others
    below."""
    seen = {"NormalizeAcross", "SumAcross", "BinCount", "CTC", "Determinant", "Cofactors", "Fourier"}
    seen |= {function.__name__ for function, _, _ in BYTES.values()}
    apply = Function.apply.__func__  # type: ignore[attr-defined]

    def note(cls: Any, *inputs: Any, **options: Any) -> Any:
        seen.add(cls.__name__)
        return apply(cls, *inputs, **options)

    monkeypatch.setattr(Function, "apply", classmethod(note))
    for function, shapes_of in OPERATIONS.values():
        function(*[mn.ones(*shape, device="cuda", requires_grad=True) for shape in shapes_of])
    for function, arguments in layouts.CASES.values():
        function(*[mn.tensor(a.values(0, mn.float32), device="cuda") for a in arguments])
    rooms = (ops, normalization)
    names = [f"{room.__name__}.{file.name}" for room in rooms for file in pkgutil.iter_modules(room.__path__)]
    kinds = {
        kind
        for module in map(importlib.import_module, names)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Function) and kind is not Function
    }
    assert {kind.__name__ for kind in kinds if not kind.__subclasses__()} - seen == set()


def test_ctc_goes_by_way_of_the_host(cuda: Any) -> None:
    numbers = np.random.default_rng(0).standard_normal((6, 2, 4)).astype(np.float32)
    found = []
    for device in ("cpu", "cuda:0"):
        x = mn.tensor(numbers, device=device, requires_grad=True)
        loss = F.ctc_loss(x.log_softmax(2), mn.tensor([[1, 2], [2, 2]], device=device), [6, 5], [2, 1])
        loss.backward(retain_graph=True)
        assert x.grad is not None
        (first,) = grad(loss, x, create_graph=True)
        (second,) = grad((first * first).sum(), x)
        assert {loss.device, x.grad.device, second.device} == {device}
        found.append((loss.cpu().numpy(), x.grad.cpu().numpy(), second.cpu().numpy()))
    for mine, expected in zip(*found, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", BY_THE_HOST)
def test_others_that_go_by_way_of_the_host(cuda: Any, name: str) -> None:
    function, (shape,) = BY_THE_HOST[name]
    numbers, found = np.random.default_rng(0).standard_normal(shape), []
    for device in ("cpu", "cuda:0"):
        x = mn.tensor(numbers, device=device, requires_grad=True)
        y = function(x)
        y.sum().backward(retain_graph=True)
        assert x.grad is not None
        (first,) = grad((y * y).sum(), x, create_graph=True)
        (second,) = grad((first * first).sum(), x)
        assert {y.device, x.grad.device, second.device} == {device}
        found.append([t.detach().cpu().numpy() for t in (y, x.grad, second)])
    for mine, expected in zip(*found, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-12, atol=1e-12)
