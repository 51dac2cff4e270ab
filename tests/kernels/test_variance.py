"""Variance by name: what each formula gives, where it fails, and that gradients are defined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import minorm as mn
import minorm.functional as F
from minorm import nn
from minorm.distributed import simulate
from minorm.kernels.variance import FORMULAS, backend_of
from minorm.tensor.tensor import Tensor
from minorm.testing import gradcheck

NAMES = list(FORMULAS)
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "batch_norm": (lambda x, **o: F.batch_norm(x, None, None, training=True, **o), (0, 2, 3)),
    "instance_norm": (F.instance_norm, (2, 3)),
    "mean_variance_norm": (lambda x, **o: F.mean_variance_norm(x, (0, 1), eps=1e-5, **o), (0, 1)),
}


def formula(name: str, x: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The moments as one would write them in NumPy, in x's type."""
    mean = x.mean(axes, keepdims=True)
    if name == "two_pass":
        return mean, ((x - mean) ** 2).mean(axes, keepdims=True)
    return mean, (x**2).mean(axes, keepdims=True) - mean**2


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15)
@given(
    shape=st.tuples(*[st.integers(2, 5)] * 4),
    order=st.permutations(range(4)),
    seed=st.integers(0, 99),
)
def test_in_float64_all_agree(function: str, name: str, shape: tuple[int, ...], order: list[int], seed: int) -> None:
    call, _ = FUNCTIONS[function]
    x = np.random.default_rng(seed).standard_normal(shape).transpose(order) + 1
    y = call(Tensor(x), variance=name)
    np.testing.assert_allclose(y.numpy(), call(Tensor(x)).numpy(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", ["two_pass", "onnx"])
def test_in_float32_it_is_the_formula(function: str, name: str) -> None:
    call, axes = FUNCTIONS[function]
    x = (np.random.default_rng(0).standard_normal((4, 3, 6, 5)) + 30).astype(np.float32)
    mean, var = (a.astype(np.float64) for a in formula(name, x, axes))
    std = np.sqrt(var) + 1e-5 if function == "mean_variance_norm" else np.sqrt(var + 1e-5)
    # Sums are NumPy's pairwise ones; over axes in another order they round elsewhere.
    tolerance = 3e-5 if name == "two_pass" else 2e-3
    np.testing.assert_allclose(call(Tensor(x), variance=name).numpy(), (x - mean) / std, rtol=tolerance, atol=tolerance)


def test_the_catastrophe_at_offset_1e4() -> None:
    """E[x^2] - E[x]^2 in float32: at a mean of 1e4 and a variance of 1 nothing of the variance is left."""
    x = (np.random.default_rng(0).standard_normal((256, 4)) + 1e4).astype(np.float32)
    wide = x.astype(np.float64)
    right = (wide - wide.mean(0)) / np.sqrt(wide.var(0) + 1e-5)
    error = {
        name: np.abs(F.batch_norm(Tensor(x), None, None, training=True, variance=name).numpy() - right).max()
        for name in (None, *NAMES)
    }
    assert error[None] < 1e-6
    assert error["two_pass"] < 5e-3  # the mean is rounded to a multiple of 1e-3
    assert error["welford"] < 5e-3
    assert not error["onnx"] < 0.5  # NaN counts: a negative variance
    var = FORMULAS["onnx"](np.ascontiguousarray(x.T))[1]
    assert np.abs(var - wide.var(0)).min() > 0.5


def test_a_negative_variance_is_nan_and_silent() -> None:
    layer = nn.BatchNorm1d(1, eps=0, variance="onnx")
    rng = np.random.default_rng(0)
    with np.errstate(all="raise"):
        found = []
        for _ in range(20):
            given = Tensor((rng.standard_normal((16, 1)) * 1e-2 + 1e4).astype(np.float32)).requires_grad_()
            y = layer(given)
            y.sum().backward()
            found.append(np.isnan(y.numpy()).any())
    assert any(found)


def test_welford_is_the_update_by_one_element() -> None:
    row = (np.random.default_rng(0).standard_normal(50) + 100).astype(np.float32)
    mean = m2 = np.float32(0)
    for i, x in enumerate(row, 1):
        d = x - mean
        mean = mean + d / np.float32(i)
        m2 = m2 + d * (x - mean)
    found = FORMULAS["welford"](row[None])
    assert (found[0][0], found[1][0]) == (mean, m2 / np.float32(50))
    assert found[1].dtype == np.float32


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", NAMES)
def test_gradients(function: str, name: str) -> None:
    call, _ = FUNCTIONS[function]
    x = mn.randn(3, 2, 3, 2, dtype=mn.float64, requires_grad=True)
    assert gradcheck(lambda x: call(x, variance=name), x) < 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_gradients_in_float32_use_the_statistics_of_forward(name: str) -> None:
    """dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), whatever mean and rstd are."""
    rng = np.random.default_rng(0)
    x, dy = (rng.standard_normal((64, 3)) + 300).astype(np.float32), rng.standard_normal((64, 3)).astype(np.float32)
    given = Tensor(x).requires_grad_()
    F.batch_norm(given, None, None, training=True, variance=name).backward(Tensor(dy))
    mean, var = FORMULAS[name](np.ascontiguousarray(x.T))
    rstd = 1 / np.sqrt(var.astype(np.float64) + 1e-5)
    xhat = (x - mean) * rstd
    expected = rstd * (dy - dy.mean(0) - xhat * (dy * xhat).mean(0))
    np.testing.assert_allclose(given.grad.numpy(), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16])
def test_sixteen_bits_are_computed_in_float32(dtype: Any) -> None:
    x = mn.randn(8, 3).to(dtype)
    y = F.batch_norm(x, None, None, training=True, variance="two_pass")
    assert y.dtype == dtype
    expected = F.batch_norm(x.float(), None, None, training=True).to(dtype)
    np.testing.assert_allclose(y.float().numpy(), expected.float().numpy(), rtol=1e-2, atol=1e-2)


def test_compute_dtype_repairs_it() -> None:
    x = Tensor((np.random.default_rng(0).standard_normal((256, 4)) + 1e4).astype(np.float32))
    y = F.batch_norm(x, None, None, training=True, variance="onnx", compute_dtype=mn.float64)
    right = F.batch_norm(x, None, None, training=True)
    np.testing.assert_allclose(y.numpy(), right.numpy(), rtol=1e-5, atol=1e-5)


LAYERS = {
    "BatchNorm1d": (lambda **o: nn.BatchNorm1d(3, **o), (6, 3)),
    "BatchNorm2d": (lambda **o: nn.BatchNorm2d(3, **o), (6, 3, 2, 2)),
    "SyncBatchNorm": (lambda **o: nn.SyncBatchNorm(3, **o), (6, 3, 2, 2)),
    "InstanceNorm2d": (lambda **o: nn.InstanceNorm2d(3, track_running_stats=True, **o), (6, 3, 2, 2)),
    "MeanVarianceNorm": (lambda **o: nn.MeanVarianceNorm((0, 2), **o), (6, 3, 2, 2)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_take_it(name: str) -> None:
    make, shape = LAYERS[name]
    mn.manual_seed(0)
    x = mn.randn(*shape, requires_grad=True) + 1000
    layer, plain = make(variance="onnx"), make()
    y = layer(x)
    assert np.abs(y.detach().numpy() - plain(x).detach().numpy()).max() > 1e-3 or not np.isfinite(y.numpy()).all()
    y.sum().backward()
    if name != "MeanVarianceNorm":
        assert not np.array_equal(layer.running_var.numpy(), plain.running_var.numpy())
        layer.eval()
        layer.load_state_dict(plain.eval().state_dict())
        np.testing.assert_allclose(layer(x).detach().numpy(), plain(x).detach().numpy(), rtol=1e-6)


def test_ranks_merge_what_each_found() -> None:
    x = (np.random.default_rng(0).standard_normal((8, 3)) + 1).astype(np.float64)

    def program(group: Any) -> Any:
        layer = nn.SyncBatchNorm(3, process_group=group, variance="welford", dtype=mn.float64)
        return layer(Tensor(np.split(x, 2)[group.rank])).detach().numpy()

    y = np.concatenate(simulate(2, program))
    np.testing.assert_allclose(y, (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5), rtol=1e-10)


def test_export_leaves_it_out() -> None:
    onnx = pytest.importorskip("minorm.onnx")
    for layer in (nn.BatchNorm2d(3, variance="onnx"), nn.InstanceNorm2d(3, variance="two_pass"),
                  nn.MeanVarianceNorm(variance="welford")):  # fmt: skip
        x = mn.randn(4, 3, 2, 2)
        loaded = onnx.load(onnx.export(layer.eval(), x, None))
        np.testing.assert_allclose(loaded(x).numpy(), layer(x).numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_bad_input(function: str) -> None:
    call, _ = FUNCTIONS[function]
    x = mn.randn(2, 3, 2, 2)
    for wrong in ("naive", 3, True):
        with pytest.raises(ValueError, match=rf"{function}: variance={wrong!r}; expected None, 'two_pass', 'welford'"):
            call(x, variance=wrong)
    with pytest.raises(ValueError, match=f"{function}: variance='onnx' and a backend"):
        call(x, variance="onnx", backend=backend_of("", "onnx", None))
