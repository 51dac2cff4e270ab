"""Convolution and its transpose as Functions: gradients against finite differences and PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm.tensor.tensor import Tensor
from minorm.testing import gradcheck

CONVS = [  # function, x, weight, options
    (F.conv1d, (2, 3, 8), (4, 3, 3), {"stride": 2, "padding": 1}),
    (F.conv1d, (2, 2, 7), (2, 2, 4), {"padding": "same"}),
    (F.conv2d, (2, 2, 5, 6), (3, 2, 3, 3), {"padding": 1}),
    (F.conv2d, (2, 4, 5, 5), (4, 2, 3, 2), {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "groups": 2}),
    (F.conv2d, (2, 3, 4, 4), (3, 1, 3, 3), {"padding": "same", "groups": 3}),
    (F.conv2d, (1, 2, 5, 5), (2, 2, 1, 1), {"stride": 2}),
    (F.conv3d, (1, 2, 3, 4, 4), (2, 2, 2, 3, 3), {"padding": 1, "stride": (1, 2, 1)}),
]
TRANSPOSES = [
    (F.conv_transpose1d, (2, 3, 5), (3, 2, 4), {"stride": 2, "padding": 1, "output_padding": 1}),
    (F.conv_transpose2d, (2, 2, 4, 3), (2, 3, 3, 3), {}),
    (F.conv_transpose2d, (2, 4, 3, 3), (4, 2, 3, 2), {"stride": (2, 3), "padding": (1, 0), "groups": 2, "dilation": 2}),
    (F.conv_transpose3d, (1, 2, 2, 3, 3), (2, 1, 2, 2, 3), {"stride": (1, 2, 2), "output_padding": (0, 1, 1)}),
]


def arrays(function: Any, x_shape: Any, w_shape: Any, options: Any, dtype: Any = np.float64) -> Any:
    rng = np.random.default_rng(3)
    outputs = w_shape[1] * options.get("groups", 1) if "transpose" in function.__name__ else w_shape[0]
    return [rng.standard_normal(shape).astype(dtype) for shape in (x_shape, w_shape, (outputs,))]


@pytest.mark.parametrize(("function", "x", "w", "options"), CONVS + TRANSPOSES)
def test_gradients(function: Any, x: Any, w: Any, options: Any) -> None:
    gradcheck(lambda x, w, b: function(x, w, b, **options), *arrays(function, x, w, options))


@pytest.mark.filterwarnings("ignore:Using padding='same'")  # PyTorch's, about its speed
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("function", "x", "w", "options"), CONVS + TRANSPOSES)
def test_like_pytorch(function: Any, x: Any, w: Any, options: Any, dtype: Any) -> None:
    torch = pytest.importorskip("torch")
    values = arrays(function, x, w, options, dtype)
    ours = [Tensor(a.copy(), True) for a in values]
    theirs = [torch.tensor(a, requires_grad=True) for a in values]
    y = function(*ours, **options)
    expected = getattr(torch.nn.functional, function.__name__)(*theirs, **options)
    tolerance = {"rtol": 2e-4, "atol": 2e-4} if dtype == np.float32 else {"rtol": 1e-10, "atol": 1e-10}
    np.testing.assert_allclose(y.numpy(), expected.detach().numpy(), **tolerance)
    dy = np.random.default_rng(4).standard_normal(y.shape).astype(dtype)
    y.backward(dy)
    expected.backward(torch.from_numpy(dy))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), **tolerance)


# stride, dilation, output_padding: every output_padding from a stride on that a dilation up to 5 allows, and four less
SPREAD = [(s, d, extra) for d in range(1, 6) for s in range(1, 5) for extra in range(s, d)]
SPREAD += [(2, 1, 1), (3, 2, 2), (3, 1, 0), (4, 2, 3)]


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("kernel", [1, 2, 3])
@pytest.mark.parametrize("rank", [1, 2])
def test_a_transpose_with_any_output_padding_is_like_pytorch(rank: int, kernel: int, padding: int, groups: int) -> None:
    """576 settings: an output_padding of a stride or more leaves places that no element of x reaches."""
    torch = pytest.importorskip("torch")
    assert len(SPREAD) * 2 * 2 * 3 * 2 == 576
    ours = (F.conv_transpose1d, F.conv_transpose2d)[rank - 1]
    theirs = (torch.conv_transpose1d, torch.conv_transpose2d)[rank - 1]
    rng = np.random.default_rng(5)
    shapes = ((2, 2 * groups, *(4, 3)[:rank]), (2 * groups, 3, *[kernel] * rank), (3 * groups,))
    for stride, dilation, extra in SPREAD:
        how = (stride, padding, extra, groups, dilation)
        values = [rng.standard_normal(shape) for shape in shapes]
        mine = [Tensor(a.copy(), True) for a in values]
        other = [torch.tensor(a, requires_grad=True) for a in values]
        y, expected = ours(*mine, *how), theirs(*other, *how)
        np.testing.assert_allclose(y.numpy(), expected.detach().numpy(), rtol=0, atol=1e-12, err_msg=str(how))
        dy = rng.standard_normal(y.shape)
        y.backward(dy)
        expected.backward(torch.from_numpy(dy))
        for a, b in zip(mine, other, strict=True):
            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=0, atol=1e-11, err_msg=str(how))


def test_a_transpose_whose_weight_alone_wants_a_gradient() -> None:
    """Where it went unnoticed that the convolution back is larger than x; the sum is written out here."""
    rng = np.random.default_rng(6)
    x, w = rng.standard_normal((1, 2, 9, 9)), Tensor(rng.standard_normal((2, 3, 2, 2)), True)
    y = F.conv_transpose2d(Tensor(x), w, dilation=40, output_padding=39)
    assert y.shape == (1, 3, 88, 88)
    dy = rng.standard_normal(y.shape)
    y.backward(dy)
    for i, j in np.ndindex(2, 2):
        seen = dy[:, :, 40 * i : 40 * i + 9, 40 * j : 40 * j + 9]
        np.testing.assert_allclose(w.grad.numpy()[:, :, i, j], np.einsum("ncij,noij->co", x, seen), atol=1e-12)


@pytest.mark.parametrize("function", [F.conv2d, F.conv_transpose2d])
@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, False), (False, False, True)])
def test_only_the_gradients_that_are_wanted(function: Any, wanted: Any) -> None:
    values = arrays(function, (2, 3, 5, 5), (3, 3, 3, 3), {})
    all_of_them = [Tensor(a, True) for a in values]
    function(*all_of_them).sum().backward()
    some = [Tensor(a, need) for a, need in zip(values, wanted, strict=True)]
    function(*some).sum().backward()
    for a, b, need in zip(some, all_of_them, wanted, strict=True):
        assert (a.grad is not None) == need
        if need:
            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-12)


def test_a_gradient_that_is_one_number_repeated() -> None:
    """The gradient of a sum has strides of 0."""
    x, w = Tensor(np.ones((2, 3, 5, 5), np.float32), True), Tensor(np.ones((4, 3, 3, 3), np.float32), True)
    F.conv2d(x, w, padding=1).sum().backward()
    assert x.grad.numpy()[0, 0].tolist()[2] == [24, 36, 36, 36, 24]
    assert w.grad.numpy()[0, 0].tolist() == [[32, 40, 32], [40, 50, 40], [32, 40, 32]]


def test_weights_changed_in_place_are_noticed() -> None:
    x, w = Tensor(np.ones((1, 1, 3, 3)), True), Tensor(np.ones((1, 1, 2, 2)), True)
    y = F.conv2d(x, w).sum()
    w.version.count += 1
    with pytest.raises(RuntimeError, match="Convolution"):
        y.backward()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves(dtype: str) -> None:
    values = arrays(F.conv2d, (2, 3, 6, 6), (4, 3, 3, 3), {}, np.float32)
    half = [mn.tensor(a, dtype=getattr(mn, dtype), requires_grad=True) for a in values]
    wide = [mn.tensor(np.asarray(a.numpy(), np.float32), requires_grad=True) for a in half]
    y, expected = F.conv2d(*half, padding=1), F.conv2d(*wide, padding=1)
    assert y.dtype == getattr(mn, dtype)
    tolerance = 1e-3 if dtype == "float16" else 1e-2
    np.testing.assert_allclose(np.asarray(y.numpy(), np.float32), expected.numpy(), rtol=tolerance, atol=tolerance)
    y.sum().backward()
    assert half[1].grad.dtype == half[1].dtype
