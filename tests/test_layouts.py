# ruff: noqa: B008  a default keeps what a loop has now
"""Every functional gives the same results and gradients for any layout in memory as for a contiguous copy.

Axes in any order, gaps, negative steps, steps of 0, elements at odd addresses, read-only memory: hypothesis draws them
for each argument and for the gradient that comes in. Foreign byte order is the one thing that is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import minorm as mn
import minorm.functional as F

# Arrays


class Stored(NamedTuple):
    """How an array lies in memory."""

    order: list[int]  # the axes from the outermost to the innermost
    steps: list[int]  # of each axis, in elements of that axis; 0 repeats one element
    offset: int  # bytes before the first element
    writeable: bool

    def store(self, values: np.ndarray) -> np.ndarray:
        """Return an array in this layout with these values; an axis of step 0 repeats the values at its beginning."""
        room = tuple(n * max(1, abs(step)) for n, step in zip(values.shape, self.steps, strict=True))
        inner_first = tuple(room[axis] for axis in self.order)
        memory = np.full(self.offset + int(np.prod(room)) * values.itemsize, 0xFF, np.uint8)  # NaN in every float type
        whole = memory[self.offset :].view(values.dtype).reshape(inner_first).transpose(np.argsort(self.order))
        x = whole[(..., *[slice(None, None, step or 1) for step in self.steps])]
        repeated = tuple(slice(0, 1) if step == 0 else slice(None) for step in self.steps)
        x[...] = values[repeated] if 0 in self.steps else values
        if 0 in self.steps:
            steps = [0 if step == 0 else stride for step, stride in zip(self.steps, x.strides, strict=True)]
            x = np.lib.stride_tricks.as_strided(x, strides=steps)
        if not self.writeable:
            x.flags.writeable = False
        return x


@st.composite
def storage(
    draw: Any, rank: int, steps: tuple[int, ...] = (1, 1, 1, 1, 1, 2, -1, -2, 0), owned: bool = False
) -> Stored:
    return Stored(
        draw(st.permutations(range(rank))),
        draw(st.lists(st.sampled_from(steps), min_size=rank, max_size=rank)),
        draw(st.sampled_from((0, 0, 0, 1, 6, 8))),
        owned or draw(st.booleans()),
    )


class Argument(NamedTuple):
    shape: tuple[int, ...]
    kind: str = "number"  # or "running" or "count", which the call changes, or "class", a number below 5

    def values(self, seed: int, dtype: Any) -> np.ndarray:
        rng = np.random.default_rng(seed)
        if self.kind == "class":
            return rng.integers(0, 5, self.shape)
        if self.kind == "count":
            return np.full(self.shape, 3)
        values = rng.standard_normal(self.shape)
        return (abs(values) + 0.5 if self.kind == "running" else values).astype(dtype)


# Calls


CASES: dict[str, tuple[Callable[..., Any], list[Argument]]] = {}


def case(name: str, function: Callable[..., Any], *arguments: Any) -> None:
    assert name not in CASES
    CASES[name] = (function, [a if isinstance(a, Argument) else Argument(a) for a in arguments])


for name in ("relu", "relu6", "leaky_relu", "elu", "gelu", "silu", "sigmoid", "tanh", "hardswish", "hardsigmoid",
             "softplus"):  # fmt: skip
    case(name, getattr(F, name), (3, 5, 7))
for name in ("softmax", "log_softmax"):
    case(name, lambda x, f=getattr(F, name): f(x, 1), (3, 5, 7))
    case(f"{name} along the last axis", lambda x, f=getattr(F, name): f(x, -1), (3, 5, 7))
case("dropout", lambda x: (mn.manual_seed(1), F.dropout(x, 0.3))[1], (5, 6, 7))
case("linear", F.linear, (4, 6, 9), (5, 9), (5,))
case("linear of rows", F.linear, (17, 9), (5, 9), (5,))

for rank, size in ((1, (11,)), (2, (6, 7)), (3, (3, 4, 5))):
    conv, transposed = getattr(F, f"conv{rank}d"), getattr(F, f"conv_transpose{rank}d")
    kernel = (3,) * rank
    case(f"conv{rank}d", lambda x, w, b, f=conv: f(x, w, b, padding=1), (2, 4, *size), (6, 4, *kernel), (6,))
    case(
        f"conv{rank}d in groups, with strides",
        lambda x, w, f=conv: f(x, w, None, 2, 1, groups=2),
        (2, 4, *size),
        (6, 2, *kernel),
    )
    case(f"conv_transpose{rank}d", lambda x, w, b, f=transposed: f(x, w, b, 2, 1),
         (2, 4, *size), (4, 3, *kernel), (3,))  # fmt: skip
    case(f"max_pool{rank}d", lambda x, f=getattr(F, f"max_pool{rank}d"): f(x, 3, 2, 1), (2, 3, *size))
    case(f"avg_pool{rank}d", lambda x, f=getattr(F, f"avg_pool{rank}d"): f(x, 3, 1, 1), (2, 3, *size))
case("conv2d, 1x1", F.conv2d, (2, 8, 6, 7), (5, 8, 1, 1), (5,))
case("conv2d, depthwise", lambda x, w: F.conv2d(x, w, groups=4, dilation=2), (2, 4, 6, 7), (4, 1, 3, 3))
case("max_pool2d with places", lambda x: F.max_pool2d(x, 2, return_indices=True), (2, 3, 6, 7))
case("adaptive_avg_pool1d", lambda x: F.adaptive_avg_pool1d(x, 3), (2, 3, 11))
case("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, (3, 1)), (2, 3, 6, 7))

classes = Argument((6,), "class")
case("cross_entropy", lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), (6, 5), classes)
case("cross_entropy of images", lambda x, t: F.cross_entropy(x, t, reduction="none"), (2, 5, 3, 4),
     Argument((2, 3, 4), "class"))  # fmt: skip
case("cross_entropy of probabilities", lambda x, p: F.cross_entropy(x, p.detach()), (6, 5), (6, 5))
case("nll_loss", lambda x, t: F.nll_loss(x, t, reduction="sum"), (6, 5), classes)
for name in ("mse_loss", "l1_loss", "smooth_l1_loss"):
    case(name, lambda x, y, f=getattr(F, name): f(x, y, reduction="none"), (4, 5, 6), (4, 5, 6))
case(
    "binary_cross_entropy_with_logits",
    lambda x, t: F.binary_cross_entropy_with_logits(x, t.detach()),
    (4, 5, 6),
    (4, 5, 6),
)

channels, running = (8,), Argument((8,), "running")


def batch_norm(x: Any, weight: Any, bias: Any, mean: Any, var: Any, count: Any, training: bool = True) -> Any:
    y = F.batch_norm(x, mean, var, weight, bias, training, None, num_batches_tracked=count)
    return y, mean, var, count


def instance_norm(x: Any, weight: Any, bias: Any, mean: Any, var: Any) -> Any:
    return F.instance_norm(x, mean, var, weight, bias), mean, var


for shape in ((5, 8, 6, 4), (40, 8), (2, 8, 3, 4, 5)):
    counted = (running, running, Argument((1,), "count"))
    case(f"batch_norm of {shape}", batch_norm, shape, channels, channels, *counted)
    case(f"batch_norm in evaluation of {shape}", lambda *given: batch_norm(*given, training=False)[0],
         shape, channels, channels, *counted)  # fmt: skip
case("batch_norm over N alone", lambda x, w, b: F.batch_norm(x, None, None, w, b, True), (6, 8, 3, 4), (8, 3, 4),
     (8, 3, 4))  # fmt: skip
for training in (True, False):
    case(
        f"batch_norm in float64, training={training}",
        lambda x, w, b, mean, var, training=training: F.batch_norm(
            x, mean, var, w, b, training, compute_dtype="float64"
        ),
        *((3, 8, 5, 6), channels, channels, running, running),
    )
case("instance_norm", instance_norm, (3, 8, 5, 6), channels, channels, running, running)


def ghost_batch_norm(x: Any, weight: Any, bias: Any, mean: Any, var: Any, count: Any) -> Any:
    y = F.ghost_batch_norm(x, mean, var, 2, weight, bias, True, None, num_batches_tracked=count)
    return y, mean, var, count


def batch_renorm(x: Any, weight: Any, bias: Any, mean: Any, var: Any, count: Any) -> Any:
    y = F.batch_renorm(x, mean, var, weight, bias, True, None, 1e-5, 1.5, 0.5, num_batches_tracked=count)
    return y, mean, var, count


for shape in ((6, 8, 3, 4), (5, 8, 4)):
    case(f"ghost_batch_norm of {shape}", ghost_batch_norm, shape, channels, channels, *counted)
    case(f"batch_renorm of {shape}", batch_renorm, shape, channels, channels, *counted)
case("filter_response_norm", lambda x, w, b: F.filter_response_norm(x, w, b, 0.1), (3, 8, 5, 6), channels, channels)
for name in ("two_pass", "welford", "onnx"):
    case(f"batch_norm by {name}", lambda x, w, b, mean, var, name=name: (
        F.batch_norm(x, mean, var, w, b, True, variance=name), mean, var), (3, 8, 5, 6), channels, channels, running,
        running)  # fmt: skip
case("group_norm", lambda x, w, b: F.group_norm(x, 4, w, b), (3, 8, 5, 6), channels, channels)
case("group_norm, a scale a group", lambda x, w, b: F.group_norm(x, 4, w, b), (3, 8, 5, 6), (4,), (4,))
case("layer_norm", lambda x, w, b: F.layer_norm(x, w.shape, w, b), (7, 5, 9), (9,), (9,))
case("layer_norm over two axes", lambda x, w, b: F.layer_norm(x, w.shape, w, b), (7, 5, 9), (5, 9), (5, 9))
case("rms_norm", lambda x, w: F.rms_norm(x, w.shape, w), (7, 5, 9), (9,))
case("mean_variance_norm", F.mean_variance_norm, (3, 4, 5, 6))
case(
    "normalization",
    lambda x, s, b: F.normalization(x, s, b, (0, 3), 2),
    (3, 8, 5, 6),
    (1, 8, 5, 1),
    (1, 8, 5, 1),
)
case("normalization of five axes", lambda x: F.normalization(x, axes=(0, 2, 4)), (3, 4, 2, 5, 3))
case("local_response_norm", lambda x: F.local_response_norm(x, 3), (2, 8, 5, 6))
case("normalize", lambda x: F.normalize(x, 2.0, 1), (5, 6, 7))
case("normalize, p=1", lambda x: F.normalize(x, 1.0, 2), (5, 6, 7))


# The property


def results(function: Callable[..., Any], arrays: list[Any], arguments: list[Argument], incoming: Any) -> list[Any]:
    """All outputs, the gradients of the arguments, and the arguments as they are afterwards."""
    tensors = [
        mn.Tensor(array, requires_grad=argument.kind == "number")
        for array, argument in zip(arrays, arguments, strict=True)
    ]
    y = function(*tensors)
    outputs = y if isinstance(y, tuple) else (y,)
    outputs[0].backward(mn.Tensor(incoming(outputs[0].shape, outputs[0].dtype)))
    gradients = [None if x.grad is None else x.grad.array for x in tensors]
    return [*(output.array for output in outputs), *gradients, *arrays]


def gradient(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.random.default_rng(99).standard_normal(shape).astype(dtype)


CLOSE = {mn.float64: 1e-10, mn.float32: 2e-5, mn.float16: 4e-3, mn.bfloat16: 4e-2}


def check_same(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        if other is None:
            assert one is None
            continue
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        if other.dtype not in CLOSE:
            np.testing.assert_array_equal(one, other)
            continue
        one, other = one.astype(np.float64), other.astype(np.float64)
        close = CLOSE[np.dtype(expected[0].dtype)]
        np.testing.assert_allclose(one, other, rtol=close, atol=close * max(1.0, abs(other).max(initial=0)))


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_layout_is_as_good_as_a_copy(name: str, data: Any) -> None:
    function, arguments = CASES[name]
    dtype = data.draw(st.sampled_from([mn.float32, mn.float32, mn.float64, mn.float16, mn.bfloat16]), label="dtype")
    arrays = []
    for i, argument in enumerate(arguments):
        owned = argument.kind in ("running", "count")
        steps = (1, 1, 2, -1) if owned else (1, 1, 1, 1, 1, 2, -1, -2, 0)
        stored = data.draw(storage(len(argument.shape), steps, owned), label=f"argument {i}")
        arrays.append(stored.store(argument.values(i, dtype)))
    copies = [np.array(array, order="C") for array in arrays]  # before a call changes running statistics

    def incoming(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        nonlocal dy
        dy = data.draw(storage(len(shape)), label="incoming gradient").store(gradient(shape, dtype))
        return dy

    dy: Any = None
    found = results(function, arrays, arguments, incoming)
    expected = results(function, copies, arguments, lambda *_: np.array(dy, order="C"))
    check_same(found, expected)


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">f2", ">i8"])
def test_foreign_byte_order_is_refused_with_the_way_out(dtype: str) -> None:
    foreign = np.arange(6, dtype=dtype)
    with pytest.raises(TypeError, match=r"Tensor: data has dtype >.*newbyteorder"):
        mn.Tensor(foreign)
    np.testing.assert_array_equal(mn.tensor(foreign).numpy(), foreign)  # a copy may as well be in this machine's order


def test_every_functional_has_a_case() -> None:
    covered = " ".join(CASES)
    for name in vars(F):
        if callable(getattr(F, name)) and not name.startswith("_"):
            assert name in covered.replace(",", " ").split(), name
