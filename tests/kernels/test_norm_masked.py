"""Masked normalization in the compiled kernels, against formulas on the elements that count and on nothing else.

The oracle gathers them row by row, in long double: it knows no fill and no factor N / n. Elements that do not count
hold NaN, infinities and the largest floats wherever there is a mask.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minorm_ext
from minorm.devices import dtypes
from minorm.kernels import cpu
from minorm.kernels.protocol import Statistics
from minorm.normalization.equation import Equation
from minorm.normalization.nest import Nest, plan

norm = cpu.norm
LEVELS = minorm_ext.levels()
TYPES = ["float16", "bfloat16", "float32", "float64"]
EPS = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 2**-24, "float64": 2**-53}
EQUATIONS = [Equation(), Equation(1e-3, False), Equation(1e-3, True, True)]
LAYERS = {  # shape, axes, groups, axes of the parameters, memory order: the nests of all layers, and each strategy
    "batch": ((6, 5, 7, 7), (0, 2, 3), 1, (1,), (0, 1, 2, 3)),
    "batch, long rows": ((3, 2, 5000), (0, 2), 1, (1,), (0, 1, 2)),
    "batch, channels-last": ((6, 5, 7, 7), (0, 2, 3), 1, (1,), (0, 2, 3, 1)),
    "batch, N x C": ((300, 21), (0,), 1, (1,), (0, 1)),
    "batch, wide N x C": ((150, 270), (0,), 1, (1,), (0, 1)),
    "instance": ((4, 6, 9, 9), (2, 3), 1, (1,), (0, 1, 2, 3)),
    "instance, channels-last": ((4, 6, 9, 9), (2, 3), 1, (1,), (0, 2, 3, 1)),
    "group": ((4, 8, 9, 9), (2, 3), 2, (1, 2), (0, 1, 2, 3)),
    "group, channels-last": ((4, 8, 9, 9), (2, 3), 2, (1, 2), (0, 2, 3, 1)),
    "layer": ((30, 100), (1,), 1, (1,), (0, 1)),
    "layer, narrow": ((300, 9), (1,), 1, (1,), (0, 1)),
    "layer, long": ((4, 9000), (1,), 1, (1,), (0, 1)),
    "layer, two axes": ((10, 12, 20), (1, 2), 1, (1, 2), (0, 1, 2)),
    "layer over channels": ((3, 40, 50), (1,), 1, (1,), (0, 1, 2)),
    "rows without parameters": ((40, 33), (1,), 1, (), (0, 1)),
}
LARGE = {  # results around the cache, and parts that all threads share
    "batch": ((60, 70, 784), (0, 2), 1, (1,), (0, 1, 2)),
    "batch, channels-last": ((60, 70, 784), (0, 2), 1, (1,), (0, 2, 1)),
    "batch, few channels": ((2, 3, 300_001), (0, 2), 1, (1,), (0, 1, 2)),
    "group, channels-last": ((60, 72, 500), (2,), 8, (1, 2), (0, 2, 1)),
    "layer, vectors": ((30_000, 64), (1,), 1, (1,), (0, 1)),
    "layer, narrow": ((30_000, 100), (1,), 1, (1,), (0, 1)),
    "layer": ((9000, 301), (1,), 1, (1,), (0, 1)),
    "layer over channels": ((20, 130, 600), (1,), 1, (1,), (0, 1, 2)),
}


@pytest.fixture(autouse=True)
def _threads():
    before = minorm_ext.get_num_threads()
    yield
    minorm_ext.set_num_threads(before)


def make_mask(kind: str, shape: tuple[int, ...], axes: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """True where an element counts."""
    mask = np.zeros(shape, bool)
    if kind == "all":
        return ~mask
    if kind == "padded":  # a length for each sample
        return mask | (np.arange(shape[-1]) < rng.integers(0, shape[-1] + 1, (shape[0], *[1] * (len(shape) - 1))))
    if kind == "rows":  # constant along the reduced axes, as for tokens
        return mask | (rng.random([1 if axis in axes else n for axis, n in enumerate(shape)]) < 0.6)
    if kind == "one":
        mask.reshape(-1)[rng.integers(mask.size)] = True
        return mask
    return rng.random(shape) < {"half": 0.5, "2 %": 0.02, "none": 0}[kind]


MASKS = ["padded", "half", "2 %", "rows", "one", "none", "all"]


class Problem:
    """Arrays in the memory order of a layer, poisoned where the mask is False, and what is to come out."""

    def __init__(self, case: Any, kind: str, stored: str, offset: float = 3, seed: int = 0, wide: bool = False) -> None:
        shape, axes, groups, param, order = case
        rng = np.random.default_rng(seed)
        dtype = getattr(dtypes, stored)
        memory = rng.standard_normal((2, *(shape[axis] for axis in order)))
        self.x, self.dy = memory.transpose(0, *(1 + np.argsort(order)))
        self.x, self.dy = (self.x * 2 + offset).astype(dtype), self.dy.astype(dtype)
        self.mask = np.empty_like(self.x, bool)
        self.mask[...] = make_mask(kind, shape, axes, rng)
        poison = rng.choice([np.nan, np.inf, -np.inf, 6e4 if stored == "float16" else 3e38], shape).astype(dtype)
        self.x[~self.mask] = poison[~self.mask]
        self.dy[~self.mask] = poison[~self.mask]
        self.nest: Nest = plan(shape, axes, groups, param, tuple(step // self.x.itemsize for step in self.x.strides))
        self.computed = dtypes.float64 if wide else dtypes.compute_type(dtype)
        self.s, self.b = rng.standard_normal((2, self.nest.param_size)).astype(self.computed)
        self.eps = max(EPS[stored], EPS[self.computed.name])

    def run(self, equation: Equation) -> list[np.ndarray]:
        """y, k, d, var, rstd, count, dx, ds, db."""
        y, stats = norm.forward(self.nest, self.x, self.s, self.b, equation, self.computed, mask=self.mask)
        grads = norm.backward(self.nest, self.dy, self.x, stats, self.s, equation, dtype=self.computed, mask=self.mask)
        return [y, *stats.block, stats.count, *grads]

    def rows(self, array: np.ndarray) -> np.ndarray:
        """A row for each statistic, in the nest's order."""
        axes = self.nest.axes
        kept = [axis for axis in self.nest.order if not axes[axis].reduced]
        rest = [axis for axis in self.nest.order if axes[axis].reduced]
        return array.reshape(self.nest.shape).transpose(kept + rest).reshape(self.nest.rows, -1)

    def expected(self, equation: Equation) -> Any:
        nest = self.nest
        shape = [nest.axes[axis].count if nest.axes[axis].varies else 1 for axis in nest.order]
        whole = np.broadcast_to(np.arange(nest.param_size).reshape(shape), [nest.shape[axis] for axis in nest.order])
        param = self.rows(whole.transpose(np.argsort(nest.order)))
        x, dy, mask = self.rows(self.x), self.rows(self.dy), self.rows(self.mask)
        y, dx = np.zeros((2, *x.shape), np.longdouble)
        mean, var, rstd, count = np.zeros((4, nest.rows), np.longdouble)
        ds, db = np.zeros((2, nest.param_size), np.longdouble)
        for row in range(nest.rows):
            counts = mask[row]
            values, grad = x[row][counts].astype(np.longdouble), dy[row][counts].astype(np.longdouble)
            s, b = self.s[param[row][counts]], self.b[param[row][counts]]
            n = count[row] = values.size
            if n == 0:
                continue
            origin = values[0] if equation.centered else 0  # at 1e6 the mean has no digits to spare for float64
            offset = (values - origin).mean() if equation.centered else 0
            mean[row] = origin + offset
            away = (values - origin) - offset
            var[row] = (away**2).mean()
            std = np.sqrt(var[row])
            if n > equation.centered and not (equation.guard and std == 0):
                rstd[row] = 1 / (std + equation.eps) if equation.guard else 1 / np.sqrt(var[row] + equation.eps)
            xhat, g = away * rstd[row], grad * s
            y[row][counts] = xhat * s + b
            slope = 0 if std == 0 else (std + equation.eps) / std if equation.guard else 1
            taken = g.mean() * equation.centered + xhat * slope * (g * xhat).mean()
            dx[row][counts] = rstd[row] * (g - taken)
            np.add.at(ds, param[row][counts], grad * xhat)
            np.add.at(db, param[row][counts], grad)
        return types.SimpleNamespace(y=y, mean=mean, var=var, rstd=rstd, count=count, dx=dx, ds=ds, db=db)

    def check(self, equation: Equation) -> None:
        y, k, d, var, rstd, count, dx, ds, db = self.run(equation)
        want = self.expected(equation)
        wide = EPS[self.computed.name]

        def close(got: np.ndarray, expected: np.ndarray, scale: float, eps: float = wide) -> None:
            np.testing.assert_allclose(got.astype(np.longdouble), expected, rtol=0, atol=40 * eps * (1 + scale))

        np.testing.assert_array_equal(count, want.count)
        close(k + d, want.mean, 0 if wide == EPS["float32"] else np.abs(want.mean).max())
        close(var, want.var, want.var.max())
        close(rstd, want.rstd, want.rstd.max())
        close(self.rows(y), want.y, np.abs(want.y).max(), self.eps)
        close(self.rows(dx), want.dx, want.rstd.max() * np.abs(self.s).max() * 5, self.eps)
        close(ds, want.ds, np.sqrt(self.x.size) * 3)
        close(db, want.db, np.sqrt(self.x.size) * 3)
        for array in (y, dx):
            np.testing.assert_array_equal(array[~self.mask], 0)


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("level", LEVELS)
def test_elements_that_count(layer, kind, level, monkeypatch):
    monkeypatch.setattr(norm, "_kernels", minorm_ext.kernels("norm", level))
    for stored, wide in (("float32", False), ("float64", False), ("bfloat16", False), ("float16", True)):
        for equation in EQUATIONS:
            Problem(LAYERS[layer], kind, stored, wide=wide).check(equation)


@pytest.mark.parametrize("offset", [0, 1e4, 1e6])
@pytest.mark.parametrize("kind", ["padded", "half", "2 %", "one"])
@pytest.mark.parametrize("layer", LAYERS)
def test_far_from_0(layer, kind, offset):
    for stored in ("float32", "float64"):
        Problem(LAYERS[layer], kind, stored, offset).check(Equation())


@settings(max_examples=150)
@given(
    st.sampled_from(["rows", "columns", "runs", "groups", "layer"]),
    st.tuples(*[st.sampled_from([1, 2, 3, 5, 8, 15, 16, 17, 33, 49, 64, 100, 130])] * 3),
    st.floats(0, 1),
    st.sampled_from(TYPES),
    st.booleans(),
    st.sampled_from(EQUATIONS),
    st.integers(0, 99),
)
def test_any_mask(kind, sizes, share, stored, wide, equation, seed):
    n, c, h = sizes
    while n * c * h > 20_000:
        n, c, h = (length // 2 or 1 for length in (n, c, h))
    case = {
        "rows": ((n, c, h), (2,), 1, (1,), (0, 1, 2)),
        "columns": ((n, c, h), (0, 2), 1, (1,), (0, 2, 1)),
        "runs": ((n, c, h), (0, 2), 1, (1,), (0, 1, 2)),
        "groups": ((n, 2 * c, h), (2,), 2, (1, 2), (0, 2, 1)),
        "layer": ((n, c, h), (1, 2), 1, (1, 2), (0, 1, 2)),
    }[kind]
    problem = Problem(case, "all", stored, seed=seed, wide=wide)
    keep = np.random.default_rng(seed).random(problem.x.shape) < share
    problem.mask[...] = keep
    problem.x[~keep] = problem.dy[~keep] = np.nan
    problem.check(equation)


@pytest.mark.parametrize("kind", ["half", "padded", "rows"])
@pytest.mark.parametrize("layer", {**LAYERS, **{f"large: {name}": case for name, case in LARGE.items()}})
def test_levels_and_threads_change_no_bit(layer, kind, monkeypatch):
    large = layer.startswith("large: ")
    case = LARGE[layer[7:]] if large else LAYERS[layer]
    for stored, wide in [("float32", False)] if large else [(stored, wide) for stored in TYPES for wide in (0, 1)]:
        problem = Problem(case, kind, stored, wide=wide)
        first = None
        for level in LEVELS:
            monkeypatch.setattr(norm, "_kernels", minorm_ext.kernels("norm", level))
            for threads in (1, 2, 3):
                minorm_ext.set_num_threads(threads)
                bits = [array.tobytes() for array in problem.run(Equation())]
                first = first or bits
                assert bits == first, f"{stored}, {level}, {threads} threads"


@pytest.mark.parametrize("kind", ["half", "rows", "none"])
@pytest.mark.parametrize("layer", LARGE)
def test_results_around_the_cache(layer, kind):
    """y and dx from their formulas on whole arrays, for which the oracle would take too long."""
    problem = Problem(LARGE[layer], kind, "float32")
    y, k, d, _, rstd, count, dx, _, _ = problem.run(Equation())
    mask, x, dy = problem.rows(problem.mask), problem.rows(problem.x), problem.rows(problem.dy)
    x, dy = np.where(mask, x, 0).astype(np.float64), np.where(mask, dy, 0).astype(np.float64)
    n = np.maximum(mask.sum(1, keepdims=True), 1)
    np.testing.assert_array_equal(count, mask.sum(1))
    away = np.where(mask, x - x.sum(1, keepdims=True) / n, 0)
    np.testing.assert_allclose(k + d, x.sum(1) / n[:, 0], atol=1e-6)
    expected = np.where(count > 1, 1 / np.sqrt((away**2).sum(1) / n[:, 0] + 1e-5), 0)
    np.testing.assert_allclose(rstd, expected, rtol=1e-5)
    ones, none = np.ones_like(problem.s), np.zeros_like(problem.b)
    plain, stats = norm.forward(problem.nest, problem.x, ones, none, Equation(), mask=problem.mask)
    xhat = away * rstd[:, None]
    np.testing.assert_allclose(problem.rows(plain), xhat, atol=1e-5)
    plain_dx, _, _ = norm.backward(problem.nest, problem.dy, problem.x, stats, ones, Equation(), mask=problem.mask)
    taken = dy.sum(1, keepdims=True) / n + xhat * ((dy * xhat).sum(1, keepdims=True) / n)
    np.testing.assert_allclose(problem.rows(plain_dx), np.where(mask, rstd[:, None] * (dy - taken), 0), atol=2e-5)
    np.testing.assert_array_equal(y[~problem.mask], 0)
    np.testing.assert_array_equal(dx[~problem.mask], 0)


@pytest.mark.parametrize("layer", [name for name in LAYERS if name != "group, channels-last"])
def test_a_mask_that_is_all_true_changes_no_bit(layer):
    for stored, equation in [(stored, equation) for stored in TYPES for equation in EQUATIONS]:
        problem = Problem(LAYERS[layer], "all", stored)
        nest, x, dy, s, b = problem.nest, problem.x, problem.dy, problem.s, problem.b
        y, stats = norm.forward(nest, x, s, b, equation)
        without = [y, *stats.block, *norm.backward(nest, dy, x, stats, s, equation)]
        masked = problem.run(equation)
        del masked[5]
        assert [array.tobytes() for array in masked] == [array.tobytes() for array in without]


def test_a_row_does_not_depend_on_the_masks_of_others():
    rng = np.random.default_rng(0)
    for columns in (5, 64, 100, 700, 5000):
        x, dy = rng.standard_normal((2, 40, columns), np.float32)
        nest = plan(x.shape, (1,), 1, (1,))
        s, b = rng.standard_normal((2, columns), np.float32)
        own = rng.random(columns) < 0.7
        first = None
        for others in (0, 0.5, 1):
            mask = rng.random(x.shape) < others
            mask[7], mask[8] = own, True
            y, stats = norm.forward(nest, x, s, b, Equation(), mask=mask)
            dx, _, _ = norm.backward(nest, dy, x, stats, s, Equation(), mask=mask)
            bits = [part.tobytes() for part in (y[7:9], dx[7:9], stats.block[:, 7:9].copy())]
            first = first or bits
            assert bits == first


@pytest.mark.parametrize("layer", LAYERS)
def test_the_functions_one_by_one(layer):
    for kind, centered in [(kind, centered) for kind in ("half", "padded", "rows") for centered in (True, False)]:
        problem, equation = Problem(LAYERS[layer], kind, "float32"), Equation(1e-5, centered)
        nest, x, dy, s, b, mask = problem.nest, problem.x, problem.dy, problem.s, problem.b, problem.mask
        y, stats = norm.forward(nest, x, s, b, equation, mask=mask)
        dx, ds, db = norm.backward(nest, dy, x, stats, s, equation, mask=mask)
        for got, kept in zip(norm.moments(nest, x, centered, mask=mask), stats.block[:3], strict=True):
            np.testing.assert_array_equal(got, kept)
        np.testing.assert_array_equal(norm.apply(nest, x, stats, s, b, mask=mask), y)
        given = Statistics(stats.block)  # evaluation counts no elements
        sum_g, sum_gx = norm.grad_sums(nest, dy, x, given, s, mask=mask)
        parts = norm.grad_input(nest, dy, x, stats, s, sum_g if centered else None, sum_gx, mask=mask)
        np.testing.assert_allclose(parts, dx, rtol=1e-5, atol=1e-5 * (1 + np.abs(dx).max()))
        for got, whole in zip(norm.grad_params(nest, dy, x, given, mask=mask), (ds, db), strict=True):
            np.testing.assert_allclose(got, whole, rtol=1e-5, atol=1e-5 * (1 + np.abs(whole).max()))
        without = norm.grad_input(nest, dy, x, given, s, None, None, mask=mask)
        row_s = problem.rows(np.where(mask, dy, 0)) * stats.rstd[:, None]
        assert np.isfinite(without).all()
        np.testing.assert_array_equal(without[~mask], 0)
        assert (np.abs(problem.rows(without)) <= np.abs(row_s) * np.abs(s).max() * 1.001).all()


@pytest.mark.parametrize("columns", [False, True])
def test_edges_of_float32(columns):
    pattern = np.tile([1.0, -1.0], 20)
    x = np.stack([pattern * 1e30, pattern * 1e-30, np.full(40, 1e30), np.full(40, 12345.678), np.full(40, 3e38)])
    x = np.repeat(x, 2, 1).astype(np.float32)
    mask = np.tile([True, False], 40) & np.ones((5, 1), bool)
    x[:, 1::2] = np.nan
    if columns:
        x, mask = np.ascontiguousarray(x.T), np.ascontiguousarray(mask.T)
    nest = plan(x.shape, (0,) if columns else (1,))
    y, stats = norm.forward(nest, x, None, None, Equation(0.0, True, False), mask=mask)
    y = (y.T if columns else y)[:, ::2]
    np.testing.assert_allclose(y[:2], [pattern, pattern], rtol=1e-6)
    np.testing.assert_allclose(stats.var[:2], [1e60, 1e-60], rtol=1e-6)
    np.testing.assert_array_equal(stats.var[2:], 0)
    y, stats = norm.forward(nest, x, None, None, Equation(), mask=mask)
    np.testing.assert_array_equal((y.T if columns else y)[2:], 0)
    dx, ds, db = norm.backward(nest, np.where(mask, 1, np.inf).astype("f"), x, stats, None, Equation(), mask=mask)
    assert np.isfinite(dx).all()
    assert np.isfinite(ds).all()
    np.testing.assert_array_equal(db, mask.sum())


@pytest.mark.parametrize("axis", [0, 1])
def test_an_outlier_that_counts_first_and_nan_that_counts(axis):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 500)).astype(np.float32)
    mask = rng.random(x.shape) < 0.5
    x[np.arange(60), mask.argmax(1)] = 1e6
    x[~mask] = np.nan
    x[7, 300], mask[7, 300] = np.nan, True
    expected = [row[counts].astype(np.float64).var() for row, counts in zip(x, mask, strict=True)]
    if axis == 0:
        x, mask = np.ascontiguousarray(x.T), np.ascontiguousarray(mask.T)
    y, stats = norm.forward(plan(x.shape, (axis,)), x, None, None, Equation(), mask=mask)
    np.testing.assert_allclose(stats.var, expected, rtol=1e-6)
    assert np.isnan(stats.var[7])
    assert np.isfinite(np.delete(y if axis else y.T, 7, 0)).all()
    np.testing.assert_array_equal(y[~mask], 0)
