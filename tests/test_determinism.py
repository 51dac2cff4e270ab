"""The same bits for 1, 2, 3 and 4 threads, whatever the number of BLAS threads, on every repeat and instruction set.

One test drives every operation with floats, forward and backward. A case is a function of Tensors and the shapes of
its arguments; what is compared is every byte of its results and of all gradients.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import threadpoolctl

import minorm as mn
import minorm.functional as F
import minorm_ext
from minorm import models, nn, optim
from minorm.graph import trace
from minorm.graph.graph import Function
from minorm.normalization import normalize, renormalize
from minorm.ops import activation, convolution, loss, matmul, pooling, reduction, response
from tests.levels import FUSED, at_level

Shapes = list[tuple[int, ...]]
CASES: dict[str, tuple[Callable[..., Any], Shapes]] = {}


def case(name: str, function: Callable[..., Any], *shapes: tuple[int, ...]) -> None:
    assert name not in CASES
    CASES[name] = (function, list(shapes))


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = mn.get_num_threads()
    yield
    mn.set_num_threads(before)


def settings() -> Iterator[int]:
    """1, 2, 3 and 4 threads of ours, in turn with one and with two threads of NumPy's BLAS."""
    for threads, blas in ((1, 1), (2, 2), (3, 1), (4, 2)):
        with threadpoolctl.threadpool_limits(blas, user_api="blas"):
            mn.set_num_threads(threads)
            yield threads


def numbers(shape: tuple[int, ...], seed: int, dtype: Any = np.float32) -> Any:
    """Numbers of very different size: adding them up in another order gives other bits."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-8, 3, shape)
    return values.astype(dtype)


def run(function: Callable[..., Any], shapes: Shapes, dtype: Any = np.float32) -> bytes:
    """All results of function(*tensors) and all gradients, as bytes."""
    inputs = [mn.tensor(numbers(shape, i, dtype), requires_grad=True) for i, shape in enumerate(shapes)]
    results = function(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    floats = [y for y in results if y.requires_grad]
    for i, y in enumerate(floats):
        y.backward(mn.tensor(numbers(y.shape, 100 + i, dtype)), retain_graph=i + 1 < len(floats))
    gradients = [x.grad for x in inputs if x.grad is not None]
    assert gradients or not floats
    return b"".join(np.ascontiguousarray(tensor.array).tobytes() for tensor in (*results, *gradients))


# Normalizations, with running statistics among the results; also one channel, one row, and channels-last.


def batch_norm(training: bool = True, **options: Any) -> Callable[..., Any]:
    def function(x: Any, weight: Any, bias: Any) -> Any:
        mean, var = mn.zeros(*weight.shape, dtype=x.dtype), mn.ones(*weight.shape, dtype=x.dtype)
        y = F.batch_norm(x, mean, var, weight, bias, training=training, momentum=0.7, **options)
        return y, mean, var

    return function


def ghost_batch_norm(x: Any, weight: Any, bias: Any) -> Any:
    mean, var = mn.zeros(*weight.shape, dtype=x.dtype), mn.ones(*weight.shape, dtype=x.dtype)
    return F.ghost_batch_norm(x, mean, var, 3, weight, bias, training=True), mean, var


def batch_renorm(x: Any, weight: Any, bias: Any) -> Any:
    mean, var = mn.zeros(*weight.shape, dtype=x.dtype), mn.ones(*weight.shape, dtype=x.dtype)
    return F.batch_renorm(x, mean, var, weight, bias, training=True, dmax=0.1), mean, var


def instance_norm(x: Any, weight: Any, bias: Any, **options: Any) -> Any:
    mean, var = mn.zeros(*weight.shape, dtype=x.dtype), mn.ones(*weight.shape, dtype=x.dtype)
    return F.instance_norm(x, mean, var, weight, bias, **options), mean, var


def masked(function: Callable[..., Any]) -> Callable[..., Any]:
    """A third of the elements is left out."""
    return lambda x, *rest: function(x, *rest, mask=mn.Tensor(np.random.default_rng(9).random(x.shape) < 0.67))


def batch_norm_of(x: Any, weight: Any, bias: Any, mask: Any) -> Any:
    return batch_norm(mask=mask)(x, weight, bias)


def layer_norm_of(x: Any, weight: Any, bias: Any, mask: Any) -> Any:
    return F.layer_norm(x, weight.shape, weight, bias, mask=mask)


def channels_last(function: Callable[..., Any]) -> Callable[..., Any]:
    """x lies in memory as N, H, W, C."""
    return lambda x, *rest: function(
        x.permute(0, *range(2, x.ndim), 1).contiguous().permute(0, -1, *range(1, x.ndim - 1)), *rest
    )


IMAGES = {
    "images": (16, 24, 28, 28),
    "one channel": (16, 1, 40, 40),
    "one image": (1, 3, 96, 96),
    "one image, one channel": (1, 1, 200, 300),
    "small": (8, 16, 4, 4),
    "many channels": (4, 512, 6, 6),
}
for name, shape in IMAGES.items():
    C = shape[1]
    per_channel = [(C,), (C,)]
    for order, wrap in {"": lambda f: f, ", channels last": channels_last}.items():
        case(f"batch_norm, {name}{order}", wrap(batch_norm()), shape, *per_channel)
        case(f"batch_norm in evaluation, {name}{order}", wrap(batch_norm(training=False)), shape, *per_channel)
        case(f"instance_norm, {name}{order}", wrap(instance_norm), shape, *per_channel)
        groups = 8 if C % 8 == 0 else 1
        case(
            f"group_norm, {name}{order}",
            wrap(lambda x, w, b, groups=groups: F.group_norm(x, groups, w, b)),
            shape,
            *per_channel,
        )
        case(f"filter_response_norm, {name}{order}", wrap(F.filter_response_norm), shape, *per_channel)
        case(f"mean_variance_norm, {name}{order}", wrap(F.mean_variance_norm), shape)
        case(f"batch_norm with a mask, {name}{order}", wrap(masked(batch_norm_of)), shape, *per_channel)
        case(f"instance_norm with a mask, {name}{order}", wrap(masked(instance_norm)), shape, *per_channel)
for name, shape in {
    "table": (4096, 64),
    "long table": (60_000, 10),
    "one column": (50_000, 1),
    "wide": (16, 9000),
}.items():
    case(f"batch_norm, {name}", batch_norm(), shape, shape[1:], shape[1:])
    case(f"batch_norm with a mask, {name}", masked(batch_norm_of), shape, shape[1:], shape[1:])
    if shape[1] > 1:
        case(f"layer_norm with a mask, {name}", masked(layer_norm_of), shape, shape[1:], shape[1:])
        case(f"layer_norm, {name}", lambda x, w, b: F.layer_norm(x, w.shape, w, b), shape, shape[1:], shape[1:])
        case(f"rms_norm, {name}", lambda x, w: F.rms_norm(x, w.shape, w), shape, shape[1:])
for shape in ((16, 24, 28, 28), (17, 16, 4, 4)):
    case(f"ghost_batch_norm of {shape}", ghost_batch_norm, shape, shape[1:2], shape[1:2])
    case(f"batch_renorm of {shape}", batch_renorm, shape, shape[1:2], shape[1:2])
case("batch_norm over N alone", batch_norm(), (64, 5, 8, 8), (5, 8, 8), (5, 8, 8))
case("layer_norm, one row", lambda x, w, b: F.layer_norm(x, w.shape, w, b), (1, 300_000), (300_000,), (300_000,))
case("layer_norm over an image", lambda x, w: F.layer_norm(x, w.shape, w), (32, 8, 20, 20), (8, 20, 20))
case("group_norm, a scale a group", lambda x, w, b: F.group_norm(x, 6, w, b), (8, 24, 20, 20), (6,), (6,))
case(
    "normalization over other axes",
    lambda x, s, b: F.normalization(x, s, b, axes=(0, 3), num_groups=2),
    (8, 6, 20, 50),
    (1, 6, 20, 1),
    (1, 6, 20, 1),
)
case("normalization of five axes", lambda x: F.normalization(x, axes=(0, 2, 4)), (6, 7, 8, 9, 40))
case("normalization in float64", lambda x: F.normalization(x, compute_dtype=mn.float64), (4, 8, 50, 50))
case("local_response_norm", lambda x: F.local_response_norm(x, 5), (8, 20, 30, 30))
for p, dim in itertools.product((1.0, 2.0, 3.0), (0, 1, -1)):
    case(f"normalize, p={p}, dim={dim}", lambda x, p=p, dim=dim: F.normalize(x, p, dim), (50, 70, 30))

# Convolutions and poolings

CONVOLUTIONS = {
    "3x3": (((16, 8, 20, 20), (24, 8, 3, 3)), {"padding": 1}),
    "5x5, one image": (((1, 3, 64, 64), (20, 3, 5, 5)), {}),
    "one channel": (((64, 1, 8, 8), (16, 1, 3, 3)), {"padding": 1}),
    "one image, one channel": (((1, 1, 300, 300), (1, 1, 3, 3)), {}),
    "1x1": (((16, 64, 14, 14), (32, 64, 1, 1)), {}),
    "strides": (((16, 16, 33, 33), (32, 16, 3, 3)), {"stride": 2, "padding": 1}),
    "groups": (((8, 32, 14, 14), (32, 1, 3, 3)), {"groups": 32, "padding": 1}),
    "dilation": (((8, 12, 24, 24), (12, 12, 3, 3)), {"dilation": 2, "padding": 2}),
    "many small images": (((300, 16, 4, 4), (32, 16, 3, 3)), {"padding": 1}),
}
for name, (shapes, options) in CONVOLUTIONS.items():
    case(
        f"conv2d, {name}",
        lambda x, w, b, options=options: F.conv2d(x, w, b, **options),
        *shapes,
        shapes[1][:1],
    )
case("conv1d", lambda x, w, b: F.conv1d(x, w, b, padding=2), (8, 16, 1000), (16, 16, 5), (16,))
case("conv3d", lambda x, w, b: F.conv3d(x, w, b, padding=1), (2, 4, 10, 12, 14), (8, 4, 3, 3, 3), (8,))
case(
    "conv_transpose2d",
    lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1),
    (8, 16, 15, 15),
    (16, 12, 4, 4),
    (12,),
)


def autocast_conv2d(x: Any, w: Any) -> Any:
    with mn.autocast("cpu", dtype=mn.bfloat16):
        y = F.conv2d(x, w, padding=1)
    return y.to(x.dtype)


case(
    "conv2d, the gradient of its weights",
    lambda dy, x: convolution.ConvolutionWeight.apply(
        dy, x, shape=(6, 5, 3, 3), stride=(1, 1), padding=((1, 1), (1, 1)), dilation=(1, 1), groups=1
    ),
    (9, 6, 13, 11),
    (9, 5, 13, 11),
)
case("conv2d in autocast", autocast_conv2d, (4, 8, 15, 15), (12, 8, 3, 3))
case("max_pool2d", lambda x: F.max_pool2d(x, 3, 2, padding=1), (16, 16, 30, 30))
case("avg_pool2d", lambda x: F.avg_pool2d(x, 3, 2, padding=1), (16, 16, 30, 30))
case("avg_pool1d", lambda x: F.avg_pool1d(x, 2), (8, 16, 1000))
case("max_pool3d", lambda x: F.max_pool3d(x, 2), (2, 8, 16, 16, 16))
case("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, 1), (32, 64, 8, 8))
case("adaptive_avg_pool2d, uneven", lambda x: F.adaptive_avg_pool2d(x, (3, 5)), (32, 64, 17, 31))

# Activations and losses

for function in (F.relu, F.relu6, F.leaky_relu, F.elu, F.gelu, F.silu, F.sigmoid, F.tanh, F.hardswish, F.hardsigmoid):
    case(function.__name__, function, (100, 3001))
case("softplus", F.softplus, (100, 3001))
case("gelu by tanh", lambda x: F.gelu(x, approximate="tanh"), (100, 3001))
for dim in (0, 1, 2):
    case(f"softmax, dim={dim}", lambda x, dim=dim: F.softmax(x, dim), (60, 70, 80))
    case(f"log_softmax, dim={dim}", lambda x, dim=dim: F.log_softmax(x, dim), (60, 70, 80))
case("softmax of one row", lambda x: F.softmax(x, -1), (1, 200_000))
case("dropout", lambda x: (mn.manual_seed(1), F.dropout(x, 0.3))[1], (300, 1000))


def classes(count: int, of: int) -> Any:
    return mn.tensor(np.arange(count) * 7 % of)


for how in ("mean", "sum", "none"):
    case(
        f"cross_entropy, {how}",
        lambda x, r=how: F.cross_entropy(x, classes(len(x), 10), reduction=r, label_smoothing=0.1),
        (30_000, 10),
    )
    case(f"mse_loss, {how}", lambda x, y, r=how: F.mse_loss(x, y, reduction=r), (300, 1000), (300, 1000))
    case(f"l1_loss, {how}", lambda x, y, r=how: F.l1_loss(x, y, reduction=r), (300, 1000), (300, 1000))
case("smooth_l1_loss", F.smooth_l1_loss, (300, 1000), (300, 1000))
case("binary_cross_entropy", lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()), (300, 1000), (300, 1000))
case("cumprod", lambda x: x.cumprod(0), (300, 200))
case(
    "counts",
    lambda x: x * (x.abs() * 3).long().reshape(-1).bincount()[0].to(x.dtype) + x.detach().histc(200),
    (30, 200),
)
case("nll_loss", lambda x: F.nll_loss(F.log_softmax(x, 1), classes(len(x), 100)), (5000, 100))
case("cross_entropy of probabilities", lambda x: F.cross_entropy(x, mn.full(x.shape, 0.1, dtype=x.dtype)), (9000, 10))
case("cross_entropy of images", lambda x: F.cross_entropy(x, mn.zeros(8, 30, 30, dtype=mn.int64)), (8, 20, 30, 30))
case(
    "binary_cross_entropy_with_logits",
    lambda x: F.binary_cross_entropy_with_logits(x, mn.full(x.shape, 0.3, dtype=x.dtype)),
    (300, 1000),
)

# Sums over every set of axes, arithmetic with broadcasting, and matrix products

for axes in (axes for count in range(5) for axes in itertools.combinations(range(4), count)):
    case(f"sum over {axes}", lambda x, axes=axes: x.sum(axes), (20, 30, 25, 40))
    case(f"mean over {axes}", lambda x, axes=axes: x.mean(axes), (20, 30, 25, 40))
for shape in ((500_000,), (1, 400_000), (100_000, 3), (3, 100_000), (2000, 300)):
    case(f"sums of {shape}", lambda x: tuple(x.sum(axis) for axis in (*range(x.ndim), None)), shape)
case("var and std", lambda x: (x.var(1), x.std((0, 2)), x.amax(0), x.amin((1, 2)), x.max(), x.min()), (30, 50, 200))
case("a bias and a scale", lambda x, w, b: (x * w + b) / (w * w + 1.0), (40, 30, 300), (30, 1), (300,))
case("functions of one number", lambda x: (x.exp(), abs(x).sqrt(), (abs(x) + 1.0).log(), x.sin(), x.cos()), (100, 2001))
case(
    "other reductions",
    lambda x: (
        reduction.LogSumExp.apply(x, axes=(0, 2), keepdims=False),
        reduction.Prod.apply(x, axes=(1,), keepdims=True),
        reduction.CumSum.apply(x, axis=1, exclusive=False, reverse=True),
    ),
    (20, 90, 50),
)
case("powers and differences", lambda x, y: (x - y) ** 2 * abs(x) ** 0.5, (300, 1000), (1000,))

LINEAR = [(128, 512, 10), (64, 128, 10), (128, 800, 500), (1, 800, 500), (7, 5000, 3), (3, 7, 30_000), (1, 1, 1)]
for rows, depth, columns in LINEAR:
    case(f"linear {rows}x{depth}x{columns}", F.linear, (rows, depth), (columns, depth), (columns,))
    case(f"matmul {rows}x{depth}x{columns}", mn.matmul, (rows, depth), (depth, columns))
case("linear of sequences", F.linear, (8, 50, 120), (70, 120), (70,))
case("matmul of stacks", mn.matmul, (6, 1, 70, 300), (5, 300, 40))
case("matmul of a stack and one matrix", mn.matmul, (40, 30, 300), (300, 50))
case("dot product", mn.matmul, (300_000,), (300_000,))
case("matrix times vector", mn.matmul, (1000, 900), (900,))
case("vector times matrix", mn.matmul, (900,), (900, 1000))


@pytest.mark.parametrize("name", CASES)
def test_threads_change_no_bit(name: str) -> None:
    function, shapes = CASES[name]
    assert len({run(function, shapes) for _ in settings()}) == 1


BY_MULTIPLY_ADDS = ("conv", "linear", "matmul", "dot product", "matrix times", "vector times")


@pytest.mark.skipif(len(minorm_ext.levels()) == 1, reason="one level here")
@pytest.mark.parametrize("dtype", [mn.float32, mn.float16, mn.bfloat16, mn.float64], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_instruction_sets_change_no_bit(name: str, dtype: Any) -> None:
    function, shapes = CASES[name]
    found = set()
    for level in FUSED if name.startswith(BY_MULTIPLY_ADDS) else minorm_ext.levels():
        with at_level(level):
            found.add(run(function, shapes, dtype))
    assert len(found) == 1


ADDING_UP = (activation, convolution, loss, matmul, normalize, pooling, reduction, renormalize, response)


def test_no_operation_that_adds_up_is_left_out() -> None:
    used: set[Any] = set()
    for function, shapes in CASES.values():
        with trace.record() as calls:
            function(*[mn.ones(*shape) for shape in shapes])
        while calls:
            call = calls.pop()
            used.add(call.target)
            calls += call.children
    for module in ADDING_UP:
        for name, found in vars(module).items():
            if isinstance(found, type) and issubclass(found, Function) and found.__module__ == module.__name__:
                assert found in used or not found.differentiable or name == "Difference", f"no case uses {name}"


HALVES = ["batch_norm, images", "batch_norm, images, channels last", "group_norm, images", "layer_norm, table",
          "conv2d, 3x3", "conv2d, strides", "conv_transpose2d", "linear 128x512x10", "sum over (0, 2)",
          "adaptive_avg_pool2d, uneven", "softmax, dim=1", "gelu", "a bias and a scale"]  # fmt: skip


@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16, mn.float64], ids=str)
@pytest.mark.parametrize("name", HALVES)
def test_threads_change_no_bit_of_other_types(name: str, dtype: Any) -> None:
    function, shapes = CASES[name]
    assert len({run(function, shapes, dtype) for _ in settings()}) == 1


@pytest.mark.parametrize(
    "name",
    ["batch_norm, small", "batch_norm, one channel", "layer_norm, table", "conv2d, many small images", "conv2d, 3x3",
     "linear 128x800x500", "sum over (0, 2)", "cross_entropy, mean", "avg_pool2d"],
)  # fmt: skip
def test_fifty_repeats_give_the_same_bits(name: str) -> None:
    function, shapes = CASES[name]
    mn.set_num_threads(3)
    assert len({run(function, shapes) for _ in range(50)}) == 1


@pytest.mark.parametrize("name", ["batch_norm, images", "conv2d, 3x3", "linear 128x800x500", "max_pool2d"])
def test_more_threads_than_ranges_of_jobs_change_no_bit(name: str) -> None:
    function, shapes = CASES[name]
    found = set()
    for threads in (1, 150):  # minorm_ext/runtime/jobs.h has 128 ranges
        mn.set_num_threads(threads)
        found.add(run(function, shapes))
    assert len(found) == 1


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3, nesterov=True),
    "Adam": lambda p: optim.Adam(p, lr=1e-3),
    "AdamW": lambda p: optim.AdamW(p, lr=1e-3),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_three_training_steps_give_the_same_parameters(name: str) -> None:
    """Convolutions, BatchNorm, pooling, linear, cross entropy, clipping and the update, end to end."""
    found = set()
    for _ in settings():
        mn.manual_seed(3)
        model = models.digits_cnn()
        optimizer = OPTIMIZERS[name](model.parameters())
        losses = []
        for step in range(3):
            x, y = mn.tensor(numbers((64, 1, 8, 8), step)), classes(64, 10)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            losses.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5))
            optimizer.step()
            losses.append(loss)
        state = [array.numpy().tobytes() for array in model.state_dict().values()]
        found.add(b"".join([*state, *(loss.numpy().tobytes() for loss in losses)]))
    assert len(found) == 1


def test_nan_would_be_seen() -> None:
    """The comparison itself: bytes that differ in one bit are two results."""
    assert len({run(lambda x, k=k: x * k, [(3,)]) for k in (1.0, 1.0 + 2**-23)}) == 2
