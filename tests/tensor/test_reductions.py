"""Sums, truths and spreads of a Tensor as PyTorch's: types, empty lists of axes, 16-bit floats."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn

INTEGERS = ["uint8", "uint16", "uint32", "int8", "int16", "int32", "int64", "bool"]


@pytest.mark.parametrize("kind", INTEGERS)
def test_integers_add_up_to_int64(kind: str) -> None:
    """Against Python's integers: a difference of sums may be below 0."""
    p, q = np.array([1, 2, 3]).astype(kind), np.array([4, 5, 6]).astype(kind)
    x, y = mn.tensor(p), mn.tensor(q)
    assert x.sum().dtype == mn.int64
    assert (x.sum() - 100).item() == sum(p.tolist()) - 100
    assert (x.sum() - y.sum() - 100).item() == sum(p.tolist()) - sum(q.tolist()) - 100
    assert (-x.sum()).item() == -sum(p.tolist())
    assert x.diag().trace().dtype == x.cumsum(0).dtype == x.prod().dtype == x.sum(0).dtype == mn.int64
    assert x.sum(dtype=mn.int32).dtype == mn.int32
    assert x.sum(dtype=mn.float64).dtype == mn.float64


NAMES = ["sum", "mean", "amax", "amin", "count_nonzero", "any", "all", "var", "std", "norm"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("axes", [(), []])
@pytest.mark.parametrize("shape", [(2, 3), (4,), ()])
def test_an_empty_list_of_axes(name: str, axes: object, shape: tuple[int, ...]) -> None:
    """All axes, as in PyTorch; of any and all no axis."""
    torch = pytest.importorskip("torch")
    values = np.arange(float(np.prod(shape))).reshape(shape) - 1
    found = getattr(mn.tensor(values), name)(dim=axes)
    expected = getattr(torch.tensor(values), name)(dim=axes)
    assert found.shape == tuple(expected.shape)
    np.testing.assert_allclose(found.numpy(), expected.numpy())


def test_truths_over_no_axis_are_new() -> None:
    x = mn.tensor([True, False])
    y = x.any(dim=())
    y[0] = False
    assert x.tolist() == [True, False]


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["norm", "norm 1", "norm 3", "norm 0.5", "norm inf", "var", "std"])
def test_16_bit_floats_are_summed_in_float32(kind: str, name: str) -> None:
    """To one rounding of the float64 formula on the same numbers, also where squares leave the range."""
    scale = 300.0 if name in ("norm", "std") else 3.0
    x = (mn.tensor(np.random.default_rng(0).standard_normal((4, 500)) * scale)).to(getattr(mn, kind))
    a = x.double().numpy()
    p = {"norm": 2.0, "norm 1": 1.0, "norm 3": 3.0, "norm 0.5": 0.5, "norm inf": np.inf}.get(name)
    if p is None:
        found = getattr(x, name)(1)
        expected = getattr(a, name)(1, ddof=1)
    elif p == np.inf:
        found, expected = x.norm(p, 1), abs(a).max(1)
    else:
        x = x if p >= 1 else x / 100
        found, expected = x.norm(p, 1), (abs(x.double().numpy()) ** p).sum(1) ** (1 / p)
    assert found.dtype == x.dtype
    rounding = 2.0**-11 if kind == "float16" else 2.0**-8
    np.testing.assert_allclose(found.double().numpy(), expected, rtol=rounding * 1.01)


@pytest.mark.parametrize("dtype", [mn.float64, mn.bfloat16])
def test_moments_in_one_call(dtype: object, rng: np.random.Generator) -> None:
    numbers = rng.integers(0, 9, (3, 4)).astype(np.float64)
    x = mn.tensor(numbers).to(dtype)
    for options, ddof in (({}, 1), ({"correction": 0}, 0), ({"unbiased": False}, 0)):
        for function, expected in ((mn.var_mean, np.var), (mn.std_mean, np.std)):
            spread, mean = function(x, axis=1, keepdims=True, **options)
            assert spread.dtype == mean.dtype == dtype
            bound = 1e-12 if dtype == mn.float64 else 1e-2
            np.testing.assert_allclose(spread.double().numpy(), expected(numbers, 1, ddof=ddof, keepdims=True), bound)
            np.testing.assert_allclose(mean.double().numpy(), numbers.mean(1, keepdims=True), bound)
