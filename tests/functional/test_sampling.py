"""grid_sample and affine_grid against PyTorch, finite differences, and what one sees without any formula."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.functional import sampling as F
from minorm.testing import gradcheck

SHAPES = [((5, 7), (3, 4)), ((1, 3), (2, 5)), ((4, 3, 5), (2, 3, 2)), ((2, 1, 3), (1, 2, 2))]


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding_mode", F.PADDINGS)
@pytest.mark.parametrize("mode", F.MODES)
def test_as_pytorch(rng: np.random.Generator, mode: str, padding_mode: str, align_corners: bool) -> None:
    """Values and both gradients; a third of the positions lie outside."""
    torch = pytest.importorskip("torch")
    for lengths, result in SHAPES:
        if len(lengths) == 3 and mode == "bicubic":
            continue  # PyTorch has none
        x, grid = rng.normal(size=(2, 3, *lengths)), rng.normal(0, 1.5, (2, *result, len(lengths)))
        theirs = [torch.tensor(a, requires_grad=True) for a in (x, grid)]
        want = torch.nn.functional.grid_sample(*theirs, mode, padding_mode, align_corners)
        weights = rng.normal(size=tuple(want.shape))
        (want * torch.tensor(weights)).sum().backward()
        ours = [mn.Tensor(a, True) for a in (x, grid)]
        y = F.grid_sample(*ours, mode, padding_mode, align_corners)
        (y * mn.tensor(weights)).sum().backward()
        np.testing.assert_allclose(y.array, want.detach().numpy(), rtol=1e-12, atol=1e-12)
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a.grad.array, b.grad.numpy(), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("mode", F.MODES)
@pytest.mark.parametrize("lengths", [(6,), (3, 4), (2, 3, 2)], ids=len)
def test_finite_differences(rng: np.random.Generator, mode: str, lengths: Any) -> None:
    for padding_mode, align_corners in itertools.product(F.PADDINGS, (False, True)):
        x, grid = rng.normal(size=(1, 2, *lengths)), rng.uniform(-1.3, 1.3, (1, *(2,) * len(lengths), len(lengths)))
        gradcheck(lambda x, g, o=(mode, padding_mode, align_corners): F.grid_sample(x, g, *o), x, grid, h=1e-6)


@pytest.mark.parametrize("align_corners", [False, True])
def test_the_identity_reads_x(rng: np.random.Generator, align_corners: bool) -> None:
    x = rng.normal(size=(2, 3, 5, 4))
    theta = mn.tensor(np.broadcast_to(np.eye(2, 3), (2, 2, 3)).copy())
    grid = F.affine_grid(theta, x.shape, align_corners)
    for mode in F.MODES:
        np.testing.assert_allclose(
            F.grid_sample(mn.tensor(x), grid, mode, "border", align_corners).array, x, atol=1e-12
        )
    turned = F.affine_grid(theta * mn.tensor(np.array([[-1.0], [1.0]])), x.shape, align_corners)
    np.testing.assert_allclose(
        F.grid_sample(mn.tensor(x), turned, align_corners=align_corners, padding_mode="border").array,
        x[..., ::-1],
        atol=1e-12,
    )


def test_positions_beyond_any_number() -> None:
    """Huge, infinite and absent positions read something of x, or 0, and give finite gradients."""
    for mode, padding_mode, dtype in itertools.product(F.MODES, F.PADDINGS, (np.float32, np.float64)):
        x = mn.Tensor(np.arange(1, 7, dtype=dtype).reshape(1, 1, 2, 3), True)
        grid = mn.Tensor(np.array([1e30, -1e30, np.inf, -np.inf, np.nan, 1e9], dtype).reshape(1, 1, 3, 2), True)
        with np.errstate(over="ignore", invalid="ignore"):
            y = F.grid_sample(x, grid, mode, padding_mode)
            y.sum().backward()
        assert np.isfinite(y.array).all()
        assert np.isfinite(x.grad.array).all()
        if padding_mode == "zeros":
            assert not y.array.any()


@pytest.mark.parametrize("shape", [(0, 2, 3, 3), (2, 0, 3, 3)])
def test_nothing_to_read(shape: Any) -> None:
    x = mn.Tensor(np.zeros(shape), True)
    y = F.grid_sample(x, mn.Tensor(np.zeros((shape[0], 2, 2, 2)), True))
    assert y.shape == (*shape[:2], 2, 2)
    y.sum().backward()
    assert x.grad.shape == shape


@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16], ids=str)
def test_narrow_floats(rng: np.random.Generator, dtype: Any) -> None:
    x, grid = rng.normal(size=(1, 2, 4, 4)).astype(dtype), rng.uniform(-1, 1, (1, 3, 3, 2)).astype(dtype)
    wide = F.grid_sample(mn.tensor(x.astype(np.float32)), mn.tensor(grid.astype(np.float32)))
    given = mn.Tensor(x, True), mn.Tensor(grid, True)
    y = F.grid_sample(*given)
    np.testing.assert_array_equal(y.array, wide.array.astype(dtype))
    y.sum().backward()
    assert [t.grad.dtype for t in given] == [dtype, dtype]


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.filterwarnings("ignore:Since version 1.3.0")
def test_affine_grid_as_pytorch(rng: np.random.Generator, align_corners: bool) -> None:
    torch = pytest.importorskip("torch")
    for lengths, _ in SHAPES:
        axes = len(lengths)
        theta, size = rng.normal(size=(2, axes, axes + 1)), (2, 3, *lengths)
        want = torch.nn.functional.affine_grid(torch.tensor(theta), size, align_corners)
        y = F.affine_grid(mn.tensor(theta), size, align_corners)
        np.testing.assert_allclose(y.array, want.numpy(), rtol=1e-13, atol=1e-13)
        gradcheck(lambda t, size=size: F.affine_grid(t, size, align_corners), theta)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, g: F.grid_sample(x, g, "cubic"), "grid_sample: mode is 'cubic'; expected"),
        (lambda x, g: F.grid_sample(x, g, "nearest", "wrap"), "grid_sample: padding_mode is 'wrap'; expected"),
        (lambda x, g: F.grid_sample(x[0], g), "grid_sample: grid has shape (2, 2, 2, 2), input (3, 4, 5);"),
        (lambda x, g: F.grid_sample(x, g[:1]), "grid_sample: grid has shape (1, 2, 2, 2), input (2, 3, 4, 5);"),
        (lambda x, g: F.grid_sample(x[:, :, :0], g), "grid_sample: input has shape (2, 3, 0, 5); expected"),
        (lambda x, g: F.affine_grid(g[0], x.shape), "affine_grid: theta has shape (2, 2, 2), size is (2, 3, 4, 5);"),
    ],
)  # fmt: skip
def test_mistakes(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        call(mn.ones(2, 3, 4, 5), mn.zeros(2, 2, 2, 2))
    with pytest.raises(TypeError, match="grid_sample: grid is int64; expected a float type"):
        F.grid_sample(mn.ones(1, 1, 2, 2), mn.tensor(np.zeros((1, 1, 1, 2), np.int64)))
