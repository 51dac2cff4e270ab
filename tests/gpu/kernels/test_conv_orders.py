"""conv_cudnn.py: orders of memory of images and weights, and what is asked of cuDNN. Numbers: test_conv.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cudnn_double
import instances
import numpy as np
import pytest

import minorm as mn
from minorm import functional as F
from minorm import models, nn
from minorm.kernels import reference

HOW = ((1, 1), ((1, 1), (1, 1)), (1, 1), 1)
X, W = (2, 3, 5, 6), (4, 3, 3, 3)


@pytest.fixture
def conv(cuda: Any, monkeypatch: Any) -> Iterator[Any]:
    """The module conv with cuDNN."""
    from minorm.kernels.gpu import conv

    monkeypatch.setattr(conv.conv_cudnn, "cudnn", cudnn_double)
    for noted in (cudnn_double.executed, cudnn_double.layouts, cudnn_double.notes, cudnn_double.streams):
        noted.clear()
    conv.conv_cudnn._call.cache_clear()
    conv.conv_cudnn._handles.of_device.clear()
    yield conv
    mn.backends.cudnn.allow_tf32 = False
    conv.conv_cudnn._call.cache_clear()


@pytest.fixture
def turns(conv: Any, monkeypatch: Any) -> list[tuple[int, ...]]:
    """The shapes of the arrays whose order of memory a convolution changed, a cast's among them."""
    found: list[tuple[int, ...]] = []
    orders = conv.conv_cudnn.channels_last
    copy, cast = orders._copy, orders.cast

    def casting(x: Any, dtype: Any) -> Any:
        if not orders.lies(x.shape, x.strides, x.itemsize, True):
            found.append(x.shape)
        return cast(x, dtype)

    monkeypatch.setattr(orders, "_copy", lambda x: (found.append(x.shape), copy(x))[1])
    monkeypatch.setattr(orders, "cast", casting)
    return found


def arrays(dtype: Any) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    shapes = X, W, (4,), (2, 4, 5, 6)
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


def is_last(x: Any) -> bool:
    return bool(np.moveaxis(x.memory, 1, -1).flags.c_contiguous)


def last(cuda: Any, x: Any) -> Any:
    """On the device, with the channels last."""
    axes = x.ndim
    return cuda.array(np.ascontiguousarray(np.moveaxis(x, 1, -1))).transpose(0, axes - 1, *range(1, axes - 1))


@pytest.mark.parametrize("tf32", [False, True])
@pytest.mark.parametrize("dtype", instances.FLOATS[:3], ids=str)
def test_tensor_cores_read_channels_last(dtype: Any, tf32: bool, conv: Any, cuda: Any, turns: Any) -> None:
    mn.backends.cudnn.allow_tf32 = tf32
    x, w, b, dy = arrays(dtype)
    expected = dtype.itemsize == 2 or tf32
    y = conv.forward(*map(cuda.array, (x, w, b)), *HOW)
    dx, dw, db = conv.backward(*map(cuda.array, (dy, x, w)), *HOW)
    assert [is_last(a) for a in (y, dx)] == [expected] * 2
    assert cudnn_double.layouts == [(expected, False)] * 3
    assert dw.flags.c_contiguous  # as w is
    assert y.base is dx.base is dw.base is None
    of_x = (X[0], *X[2:], X[1])
    assert len(turns) == (3 if expected else 0)  # x twice, as forward's copy is not given to backward here; dy once
    assert all(shape in (of_x, (2, 5, 6, 4)) for shape in turns)
    units = 2 if dtype.itemsize == 2 else 20
    small = {2: 8 * instances.EPS[dtype], 4: 2e-6}[dtype.itemsize]
    for found, right in (
        (y, reference.conv.forward(x, w, b, *HOW)),
        *zip((dx, dw, db), reference.conv.backward(dy, x, w, *HOW), strict=True),
    ):
        instances.close(found, right, units, small)


def test_weights_and_their_gradient_stay_in_the_order_they_have(conv: Any, cuda: Any, turns: Any) -> None:
    x, w, b, dy = arrays(np.dtype(np.float16))
    there = [last(cuda, a) for a in (x, w, dy)]
    y = conv.forward(*there[:2], cuda.array(b), *HOW)
    _, dw, _ = conv.backward(there[2], *there[:2], *HOW)
    assert cudnn_double.layouts == [(True, True)] * 3
    assert turns == []
    assert is_last(dw)
    assert dw.base is None
    instances.close(y, reference.conv.forward(x, w, b, *HOW), 2, 8e-3)
    instances.close(dw, reference.conv.grad_weight(dy, x, W, *HOW)[0], 2, 8e-3)


def test_float32_stays_as_it_comes(conv: Any, cuda: Any, turns: Any) -> None:
    x, w, b, dy = arrays(np.dtype(np.float32))
    y = conv.forward(last(cuda, x), cuda.array(w), cuda.array(b), *HOW)
    dx, dw, _ = conv.backward(last(cuda, dy), last(cuda, x), cuda.array(w), *HOW)
    assert is_last(y)
    assert is_last(dx)
    assert dw.flags.c_contiguous
    assert turns == []


@pytest.mark.parametrize(
    ("refused", "value", "executed", "layout"),
    [
        ("biased", {4}, ["fprop"], (True, False)),
        ("mixed", True, ["fprop+bias"], (True, True)),
        ("last", True, ["fprop"], (False, False)),
    ],
)
def test_what_cudnn_refuses_is_asked_for_otherwise(
    refused: str, value: Any, executed: Any, layout: Any, conv: Any, cuda: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(cudnn_double.Refused, refused, value)
    x, w, b, dy = arrays(np.dtype(np.float16))
    y = conv.forward(*map(cuda.array, (x, w, b)), *HOW)
    dx, dw, db = conv.backward(*map(cuda.array, (dy, x, w)), *HOW)
    assert cudnn_double.executed == [*executed, "wgrad", "dgrad"]
    assert cudnn_double.layouts[0] == layout
    for found, right in (
        (y, reference.conv.forward(x, w, b, *HOW)),
        *zip((dx, dw, db), reference.conv.backward(dy, x, w, *HOW), strict=True),
    ):
        instances.close(found, right, 3, 8e-3)


def test_a_bias_may_lie_anywhere(conv: Any, cuda: Any) -> None:
    """CuDNN reads 16 bytes at once; a part of a longer array may begin elsewhere, or have gaps."""
    x, w, b, _ = arrays(np.dtype(np.float16))
    expected = conv.forward(*map(cuda.array, (x, w, b)), *HOW).memory
    long = cuda.array(np.repeat(np.concatenate([b[:1], b]), 2))
    np.testing.assert_array_equal(conv.forward(cuda.array(x), cuda.array(w), long[2::2], *HOW).memory, expected)


@pytest.mark.parametrize("spatial", [(7,), (5, 6), (3, 4, 5)])
def test_images_of_every_rank(spatial: Any, conv: Any, cuda: Any) -> None:
    mn.manual_seed(0)
    make = getattr(F, f"conv{len(spatial)}d")
    x, w = mn.randn(2, 4, *spatial).to(mn.float16), mn.randn(6, 2, *[3] * len(spatial)).to(mn.float16)
    expected = make(x, w, padding=1, groups=2)
    y = make(x.to("cuda"), w.to("cuda"), padding=1, groups=2)
    assert is_last(y.array)
    instances.close(y.array, expected.numpy(), 2, 8e-3)


def test_a_transposed_convolution_turns_what_it_reads_once(conv: Any, cuda: Any, turns: Any) -> None:
    mn.manual_seed(0)
    x, w, b = mn.randn(2, 4, 5, 6), mn.randn(4, 3, 3, 3), mn.randn(3)
    results = []
    for device in ("cpu", "cuda"):
        there = [a.to(mn.float16).to(device).requires_grad_() for a in (x, w, b)]
        y = F.conv_transpose2d(*there, stride=2)
        y.backward(mn.ones_like(y).contiguous())
        results.append([y.detach(), *(a.grad for a in there)])
    for here, there in zip(*results, strict=True):
        instances.close(there.array, here.numpy(), 3, 0.1)
    assert is_last(results[1][0].array)
    assert turns == [(2, 5, 6, 4), (2, 11, 13, 3)]  # x and dy


def test_a_stream_is_told_once(conv: Any, cuda: Any) -> None:
    x, w, _, _ = map(cuda.array, arrays(np.dtype(np.float16)))
    stream = cuda.cuda.Stream(non_blocking=True)
    conv.forward(x, w, None, *HOW)
    conv.forward(x, w, None, *HOW)
    with stream:
        conv.forward(x, w, None, *HOW)
        conv.forward(x, w, None, *HOW)
    conv.forward(x, w, None, *HOW)
    assert cudnn_double.streams == [0, stream.ptr, 0]


def test_a_graph_replays_convolutions(conv: Any, cuda: Any) -> None:
    mn.manual_seed(0)
    layer = nn.Conv2d(3, 4, 3).to("cuda")
    x = mn.randn(2, 3, 6, 6).to("cuda")

    def step() -> Any:
        with mn.autocast("cuda", mn.bfloat16):
            y = layer(x)
        layer.zero_grad()
        y.to(mn.float32).square().sum().backward()
        return y

    step()
    expected = step()
    wanted = [p.grad.cpu().numpy() for p in layer.parameters()]
    graph = mn.cuda.CUDAGraph()
    with mn.cuda.graph(graph):
        y = step()
    graph.replay()
    np.testing.assert_array_equal(y.array.memory, expected.array.memory)
    for p, right in zip(layer.parameters(), wanted, strict=True):
        np.testing.assert_array_equal(p.grad.array.memory, right)


@pytest.mark.parametrize("kind", ["bfloat16", "tf32"])
def test_a_step_of_resnet20_turns_its_images_once(kind: str, conv: Any, cuda: Any, turns: Any) -> None:
    mn.backends.cudnn.allow_tf32 = kind == "tf32"
    mn.manual_seed(0)
    model = models.build("resnet20", 3, 8, 10).to("cuda")
    x = mn.randn(2, 3, 5, 5).to("cuda")
    with mn.autocast("cuda", mn.bfloat16, enabled=kind == "bfloat16"):
        loss = nn.CrossEntropyLoss()(model(x), mn.tensor([1, 2]).to("cuda"))
    loss.backward()
    weights = {p.shape for p in model.parameters() if p.ndim == 4}
    images = [shape for shape in turns if shape not in weights]
    assert all(p.grad.array.strides == p.array.strides for p in model.parameters())
    assert images in ([(2, 3, 5, 5)], [(2, 5, 5, 3)])


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_a_gradient_may_be_an_expanded_view(kind: str, conv: Any, cuda: Any) -> None:
    """As that of a sum is, which holds one number."""
    mn.manual_seed(0)
    x, w, b = mn.randn(2, 3, 5, 6), mn.randn(4, 3, 3, 3), mn.randn(4)
    results = []
    for device in ("cpu", "cuda"):
        there = [a.to(getattr(mn, kind)).to(device).clone().requires_grad_() for a in (x, w, b)]
        F.conv2d(*there).sum().backward()
        results.append([a.grad for a in there])
    for here, there in zip(*results, strict=True):
        instances.close(there.array, here.numpy(), 4, 1e-5)
