"""One test holds the backends together: every function of the protocol against float64 formulas on whole arrays.

The formulas know nothing of loops: they take statistics with NumPy over the axes of the data. Then what only the
compiled kernels can get wrong: bits that depend on threads, and inputs at the edges of float32.
"""

from __future__ import annotations

import functools
import types

import bridge
import ml_dtypes
import numpy as np
import pytest
import shim
from hypothesis import assume, given
from hypothesis import strategies as st

import minorm_ext
from minorm.devices import dtypes
from minorm.kernels import cpu, reference
from minorm.kernels.protocol import NormBackend, Statistics
from minorm.normalization.equation import Equation
from minorm.normalization.nest import plan
from minorm.normalization.running import RunningStats

LEVELS = minorm_ext.levels()


@pytest.fixture(params=["reference", *[f"cpu-{level}" for level in LEVELS], "gpu"])
def backend(request, monkeypatch):
    if request.param == "reference":
        yield reference.norm
    elif request.param == "gpu":  # its kernels run on the CPU, see tests/gpu
        if not shim.available:
            pytest.skip("no g++")
        with bridge.gpu_norm() as norm:
            yield norm
    else:
        monkeypatch.setattr(cpu.norm, "_kernels", minorm_ext.kernels("norm", request.param[4:]))
        yield cpu.norm


@pytest.fixture
def threads():
    before = minorm_ext.get_num_threads()
    yield minorm_ext.set_num_threads
    minorm_ext.set_num_threads(before)


class Problem:
    """Data, parameters and the expected results, all from formulas on whole arrays in float64."""

    def __init__(self, shape, axes, groups, param, order, dtype, seed, scale=True, bias=True, offset=3.0):
        self.given = shape, axes, groups, param, order, np.dtype(dtype).name, seed, scale, bias
        rng = np.random.default_rng(seed)
        memory = rng.standard_normal([shape[i] for i in order])
        self.x = (memory.transpose(np.argsort(order)) * 2 + offset).astype(dtype)
        self.dy = np.empty_like(self.x)
        self.dy[...] = rng.standard_normal(shape)
        strides = tuple(step // self.x.itemsize for step in self.x.strides)
        self.nest = plan(tuple(shape), axes, groups, param, strides)
        split = self.nest.shape
        self.reduced = tuple(i for i, axis in enumerate(self.nest.axes) if axis.reduced)
        self.shared = tuple(i for i, axis in enumerate(self.nest.axes) if not axis.varies)
        wide = [n if axis.varies else 1 for n, axis in zip(split, self.nest.axes, strict=True)]
        self.s = rng.standard_normal(wide).astype(dtype) if scale else None
        self.b = rng.standard_normal(wide).astype(dtype) if bias else None
        self.flat_s, self.flat_b = self.flat(self.s), self.flat(self.b)

    def __repr__(self):
        return f"Problem{self.given}"

    def flat(self, parameter):
        """A parameter in the nest's order."""
        if parameter is None:
            return None
        order = [i for i in self.nest.order if self.nest.axes[i].varies]
        rest = [i for i in range(parameter.ndim) if i not in order]
        return parameter.transpose(rest + order).reshape(-1)

    def expected(self, equation):
        x, dy = (a.astype(np.float64).reshape(self.nest.shape) for a in (self.x, self.dy))
        s = 1.0 if self.s is None else self.s.astype(np.float64)
        b = 0.0 if self.b is None else self.b.astype(np.float64)
        m = max(self.nest.columns, 1)
        mean = x.mean(self.reduced, keepdims=True) if equation.centered else np.zeros([1] * x.ndim)
        var = ((x - mean) ** 2).mean(self.reduced, keepdims=True)
        std = np.sqrt(var)
        rstd = 1 / (std + equation.eps) if equation.guard else 1 / np.sqrt(var + equation.eps)
        xhat = (x - mean) * rstd
        g = dy * s
        sum_g = g.sum(self.reduced, keepdims=True)
        sum_gx = (g * xhat).sum(self.reduced, keepdims=True)
        # The derivative of rstd(var) by the chain rule, rather than the slope of equation.py.
        drstd = -(rstd**2) / (2 * np.where(std == 0, np.inf, std)) if equation.guard else -0.5 * rstd**3
        dvar = (g * (x - mean)).sum(self.reduced, keepdims=True) * drstd
        dmean = -(g * rstd).sum(self.reduced, keepdims=True) if equation.centered else 0.0
        dx = g * rstd + dmean / m + dvar * 2 * (x - mean) / m
        return types.SimpleNamespace(
            mean=mean, var=var, rstd=rstd, y=xhat * s + b, sum_g=sum_g, sum_gx=sum_gx, dx=dx, given_dx=g * rstd,
            ds=(dy * xhat).sum(self.shared, keepdims=True), db=dy.sum(self.shared, keepdims=True),
            bound=float(np.abs(rstd).max() * np.abs(g).max()),
        )  # fmt: skip


@st.composite
def problems(draw):
    rank = draw(st.integers(1, 5))
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 6, 17, 40, 130]), min_size=rank, max_size=rank))
    assume(np.prod(sizes) <= 20000)
    order = draw(st.permutations(range(rank)))
    axes = tuple(sorted(draw(st.sets(st.integers(0, rank - 1)))))
    groups = 1
    if rank > 1 and 1 not in axes:
        groups = draw(st.sampled_from([g for g in (1, 2, 3, 4) if sizes[1] % g == 0]))
    param = tuple(sorted(draw(st.sets(st.integers(0, rank - 1 + (groups > 1))))))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    problem = Problem(
        sizes, axes, groups, param, order, dtype, draw(st.integers(0, 99)), draw(st.booleans()), draw(st.booleans())
    )
    assume(problem.nest.fits)
    return problem


EQUATIONS = st.builds(Equation, st.sampled_from([1e-5, 1e-3]), st.booleans(), st.booleans())


def check(problem, backend, equation):
    nest, x, dy, s, b = problem.nest, problem.x, problem.dy, problem.flat_s, problem.flat_b
    want = problem.expected(equation)
    eps = np.finfo(x.dtype).eps

    def close(got, expected, bound=1.0):
        assert got.shape == expected.shape
        np.testing.assert_allclose(
            got, expected, rtol=40 * eps, atol=200 * eps * (bound + np.abs(expected).max(initial=0))
        )

    def data(got, expected, bound=1.0):
        assert got.dtype == x.dtype
        assert all(a == b for a, b, n in zip(got.strides, x.strides, x.shape, strict=True) if n > 1)
        close(got, expected.reshape(x.shape), bound)

    def statistic(got, expected, bound=1.0):
        assert got.dtype == np.float64
        close(nest.statistics(got), expected.reshape(nest.kept_shape), bound)

    def parameter(got, expected):
        assert got.dtype == x.dtype
        close(got, problem.flat(expected), np.sqrt(x.size))

    k, d, var = backend.moments(nest, x, equation.centered)
    np.testing.assert_array_equal(k, k.astype(x.dtype))
    statistic(k + d, np.broadcast_to(want.mean, want.var.shape))
    statistic(var, want.var)
    y, stats = backend.forward(nest, x, s, b, equation)
    statistic(stats.mean, np.broadcast_to(want.mean, want.var.shape))
    statistic(stats.var, want.var)
    data(y, want.y)
    assert nest.param_size > 0
    stats = Statistics.of(k, d, var, nest.flat(want.rstd.reshape(nest.kept_shape)))
    data(backend.apply(nest, x, stats, s, b), want.y)
    sum_g, sum_gx = backend.grad_sums(nest, dy, x, stats, s)
    statistic(sum_g, want.sum_g, nest.columns)
    statistic(sum_gx, want.sum_gx, nest.columns)
    ds, db = backend.grad_params(nest, dy, x, stats)
    parameter(ds, want.ds)
    parameter(db, want.db)
    dx = backend.grad_input(nest, dy, x, stats, s, sum_g if equation.centered else None, sum_gx * equation.slope(var))
    data(dx, want.dx, want.bound)
    data(backend.grad_input(nest, dy, x, stats, s, None, None), want.given_dx, want.bound)
    for needs in ((True, True), (True, False), (False, True)):
        dx, ds, db = backend.backward(nest, dy, x, stats, s, equation, needs)
        if needs[0]:
            data(dx, want.dx, want.bound)
        if needs[1]:
            parameter(ds, want.ds)
            parameter(db, want.db)


@pytest.mark.parametrize(
    "norm", [reference.norm, cpu.norm], ids=["reference", "cpu"]
)  # gpu: tests/gpu/kernels/test_norm.py
@pytest.mark.parametrize("unbiased", [False, True])
def test_forward_updates_running_statistics(norm, unbiased):
    x = (np.random.default_rng(0).standard_normal((9, 4, 5)) + 3).astype(np.float32)
    mean, var, batches = np.full(4, 2, np.float32), np.full(4, 5, np.float32), np.zeros((), np.int64)
    running = RunningStats(mean, var, 0.75, unbiased, batches)
    nest = plan(x.shape, (0, 2), 1, (1,))
    y, stats = norm.forward(nest, x, None, None, Equation(), running=running)
    assert running.changed
    assert batches == 1
    wide = x.astype(np.float64)
    np.testing.assert_allclose(mean, 2 * 0.75 + wide.mean((0, 2)) * 0.25, rtol=1e-6)
    np.testing.assert_allclose(var, 5 * 0.75 + wide.var((0, 2), ddof=unbiased) * 0.25, rtol=1e-6)
    without = norm.forward(nest, x, None, None, Equation())
    np.testing.assert_array_equal(y, without[0])
    np.testing.assert_array_equal(stats.block, without[1].block)


def test_parity(backend):
    @given(problems(), EQUATIONS)
    def holds(problem, equation):
        check(problem, backend, equation)

    holds()


LARGE = [  # shape, axes, groups, param: several chunks, parts and blocks, and every inner form
    ((32, 16, 40, 40), (0, 2, 3), 1, (1,)),
    ((900, 33, 7, 7), (0, 2, 3), 1, (1,)),
    ((2000, 3, 230), (0, 2), 1, (1,)),
    ((6, 70, 8, 64), (1, 3), 1, (2, 3)),
    ((3, 1, 150, 100), (0, 2, 3), 1, (1,)),
    ((2, 3, 30000), (0, 2), 1, (1,)),
    ((4, 32, 30, 30), (2, 3), 8, (1, 2)),
    ((4, 32, 30, 30), (2, 3), 8, (1,)),
    ((1, 8, 150, 50), (1, 2, 3), 1, (1,)),
    ((600, 129), (1,), 1, (1,)),
    ((700, 100), (1,), 1, (1,)),
    ((900, 36), (1,), 1, (1,)),
    ((3, 40000), (1,), 1, (1,)),
    ((3, 5, 5000), (2,), 1, (1, 2)),
    ((20, 50, 100), (2,), 1, (0, 2)),
    ((7, 20, 20, 30), (1, 2, 3), 1, (2, 3)),
    ((5000, 7), (0,), 1, (1,)),
    ((3000, 300), (0,), 1, (1,)),
    ((1500, 1100), (0,), 1, (1,)),
    ((4, 10, 1000), (1,), 1, (1,)),
    ((8, 20, 40, 40), (0,), 1, (1, 2, 3)),
    ((70000,), (0,), 1, ()),
    ((1, 70000), (1,), 1, (1,)),
    ((70000, 1), (0,), 1, (1,)),
]


@pytest.mark.parametrize("equation", [Equation(), Equation(1e-3, False), Equation(1e-3, True, True)], ids=str)
@pytest.mark.parametrize(("shape", "axes", "groups", "param"), LARGE, ids=str)
def test_large_and_the_same_bits_on_any_number_of_threads(shape, axes, groups, param, equation, threads):
    problem = Problem(shape, axes, groups, param, range(len(shape)), np.float32, 1)
    nest, x, dy, s, b = problem.nest, problem.x, problem.dy, problem.flat_s, problem.flat_b
    check(problem, cpu.norm, equation)
    first = None
    for n in (1, 2, 3, 4, 7, 2):
        threads(n)
        y, stats = cpu.norm.forward(nest, x, s, b, equation)
        results = [
            y, stats.block, *cpu.norm.moments(nest, x, equation.centered), cpu.norm.apply(nest, x, stats, s, b),
            *cpu.norm.backward(nest, dy, x, stats, s, equation), *cpu.norm.grad_sums(nest, dy, x, stats, s),
            *cpu.norm.grad_params(nest, dy, x, stats), cpu.norm.grad_input(nest, dy, x, stats, s, stats.k, None),
        ]  # fmt: skip
        bits = [a.tobytes() for a in results]
        first = first or bits
        assert bits == first


@pytest.mark.parametrize("shape", [(40, 4), (4, 40)], ids=["rows", "columns"])
@pytest.mark.parametrize("level", LEVELS)
def test_edges_of_float32(shape, level, monkeypatch):
    monkeypatch.setattr(cpu.norm, "_kernels", minorm_ext.kernels("norm", level))
    rows = shape == (40, 4)
    pattern = np.tile([1.0, -1.0], 20)
    columns = [pattern * 1e30, pattern * 1e-30, np.full(40, 1e30), np.full(40, 12345.678)]
    x = np.stack(columns).astype(np.float32)
    x = x if rows else np.ascontiguousarray(x.T)
    nest = plan(x.shape, (1,) if rows else (0,))
    y, stats = cpu.norm.forward(nest, x, None, None, Equation(0.0, True, False))
    y = y if rows else y.T
    np.testing.assert_allclose(y[0], pattern, rtol=1e-6)
    np.testing.assert_allclose(y[1], pattern, rtol=1e-6)
    np.testing.assert_allclose(stats.var[:2], [1e60, 1e-60], rtol=1e-6)
    np.testing.assert_array_equal(stats.var[2:], 0)
    y, stats = cpu.norm.forward(nest, x, None, None, Equation())
    np.testing.assert_array_equal((y if rows else y.T)[2:], 0)
    dx, _, _ = cpu.norm.backward(nest, np.ones_like(x), x, stats, None, Equation())
    assert np.isfinite(dx).all()


@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("rows", [300, 3000, 60000])  # one chunk of columns, one a part, several a part
def test_columns_out_of_range_beside_others(rows, centered):
    x = np.random.default_rng(0).standard_normal((rows, 40)).astype(np.float32)
    nest, equation = plan(x.shape, (0,), 1, (1,)), Equation(0.0, centered, False)
    _, plain = cpu.norm.forward(nest, x, None, None, equation)
    x[:, 3] *= 1e30
    x[:, 5] *= 1e-30
    x[rows // 2 :, 7] *= 1e30  # in some of its chunks
    x[rows // 3, 9] = np.nan
    x[rows // 3 :, 11] += 1e4  # a poor shift in some
    y, stats = cpu.norm.forward(nest, x, None, None, equation)
    wide = x.astype(np.float64)
    var = wide.var(0) if centered else (wide * wide).mean(0)
    np.testing.assert_allclose(stats.var, var, rtol=1e-6)
    np.testing.assert_allclose(y, (wide - wide.mean(0) * centered) / np.sqrt(var), rtol=1e-5, atol=5e-6)
    others = np.setdiff1d(np.arange(40), [3, 5, 7, 9, 11])
    for name in ("k", "d", "var", "rstd"):
        np.testing.assert_array_equal(getattr(stats, name)[others], getattr(plain, name)[others])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("axis", [0, 1])
def test_nan_and_inf_stay_in_their_row(bad, axis, backend):
    x = np.random.default_rng(0).standard_normal((50, 50)).astype(np.float32)
    nest = plan(x.shape, (axis,))
    clean, _ = backend.forward(nest, x, None, None, Equation())
    x[(7, 20) if axis else (20, 7)] = bad
    with np.errstate(invalid="ignore"):
        y, _ = backend.forward(nest, x, None, None, Equation())
    if axis == 0:
        y, clean = y.T, clean.T
    assert np.isnan(y[7]).any()
    np.testing.assert_array_equal(np.delete(y, 7, 0), np.delete(clean, 7, 0))


@pytest.mark.parametrize("outlier", [1e3, 1e6])
@pytest.mark.parametrize("channels_last", [False, True])
def test_variance_beside_an_outlier_that_comes_first(outlier, channels_last):
    x = np.random.default_rng(0).standard_normal((32, 16, 256)).astype(np.float32)
    x[0, :, 0] = outlier
    axes, strides = (0, 2), None
    if channels_last:
        x = np.ascontiguousarray(x.transpose(0, 2, 1)).transpose(0, 2, 1)
        strides = (16 * 256, 1, 16)
    _, _, var = cpu.norm.moments(plan(x.shape, axes, 1, (), strides), x, True)
    np.testing.assert_allclose(var, x.astype(np.float64).var(axes), rtol=1e-6)


LAYOUTS = {  # shape, axes, groups, axes of the parameters, memory order
    "rows": ((6, 100), (1,), 1, (1,), (0, 1)),
    "long rows": ((3, 9000), (1,), 1, (0,), (0, 1)),
    "long rows, a parameter for each element": ((3, 9000), (1,), 1, (1,), (0, 1)),
    "runs": ((4, 6, 37), (0, 2), 1, (1,), (0, 1, 2)),
    "groups": ((3, 8, 5, 5), (2, 3), 4, (1, 2), (0, 1, 2, 3)),
    "columns": ((50, 70), (0,), 1, (1,), (0, 1)),
    "few columns": ((9, 3, 5, 5), (0, 2, 3), 1, (1,), (0, 2, 3, 1)),
    "columns of rows": ((5, 6, 9), (1,), 1, (1,), (0, 1, 2)),
    "groups, channels last": ((3, 8, 5, 5), (2, 3), 4, (1, 2), (0, 2, 3, 1)),
}


@pytest.mark.parametrize("backend", ["reference", *[f"cpu-{level}" for level in LEVELS]], indirect=True)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("stored", "computed"), [
    ("float16", None), ("bfloat16", None), ("float16", "float64"), ("bfloat16", "float64"), ("float32", "float64"),
])  # fmt: skip
def test_stored_types_are_widened_and_rounded_once(stored, computed, layout, backend):
    """The same numbers, given in the type computed in, give the same results, which need only be rounded."""
    stored = getattr(dtypes, stored)
    wide = dtypes.float32 if computed is None else getattr(dtypes, computed)
    options = {} if computed is None else {"dtype": wide}
    problem = Problem(*LAYOUTS[layout], stored, 0)
    nest, x, dy, s, b = problem.nest, problem.x, problem.dy, problem.flat_s, problem.flat_b
    y, stats = backend.forward(nest, x, s, b, Equation(), **options)
    wide_y, wide_stats = backend.forward(nest, *(a.astype(wide) for a in (x, s, b)), Equation())
    np.testing.assert_array_equal(stats.block, wide_stats.block)
    dx, *params = backend.backward(nest, dy, x, stats, s, Equation(), **options)
    wide_dx, *wide_params = backend.backward(
        nest, *(a.astype(wide) for a in (dy, x)), stats, s.astype(wide), Equation()
    )
    for got, want in ((y, wide_y), (dx, wide_dx)):
        assert got.dtype == stored
        if stored == np.float32:
            np.testing.assert_array_equal(got, want.astype(np.float32))
        elif backend is cpu.norm:
            assert_nearest(got.reshape(-1), want.reshape(-1))
        else:  # ml_dtypes rounds float64 to float32 first
            half = float(ml_dtypes.finfo(stored).eps) / 2
            np.testing.assert_allclose(got.astype(wide), want, rtol=1.001 * half, atol=1e-7)
    for got, want in zip(params, wide_params, strict=True):
        assert got.dtype == wide
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("computed", ["float32", "float64"])
@pytest.mark.parametrize("stored", ["float16", "bfloat16"])
def test_every_16_bit_number_goes_in_and_comes_out(stored, computed, backend):
    """With mean 0 and rstd 1 each of the 65536 comes back as it was; products are rounded to the nearest, ties to even.

    A product in float64 must not be rounded to float32 first: half of one ulp of float16 is hit exactly now and then.
    """
    stored, computed = getattr(dtypes, stored), getattr(dtypes, computed)
    x = np.arange(65536, dtype=np.uint16).view(stored).reshape(1, -1)
    nest = plan(x.shape, (1,), 1, (1,))
    unit = Statistics.of(np.zeros(1), np.zeros(1), np.ones(1), np.ones(1))
    with np.errstate(all="ignore"):
        same = backend.apply(nest, x, unit, None, None, computed)
        np.testing.assert_array_equal(same.astype(np.float32), x.astype(np.float32))
        tiny = np.float64(2.0**-40) if computed == np.float64 else 0
        for scale in (1.5, 1.25, 0.75, 1 + 2.0**-11 + tiny, 1 + 2.0**-8 - tiny, 2.0**-9, 2.0**-130, 2.0**9):
            s = np.full(x.size, scale, computed)
            got = backend.apply(nest, x, unit, s, None, computed)[0]
            if backend is cpu.norm:
                assert_nearest(got, x[0].astype(computed) * s)


def assert_nearest(got, exact):
    """No neighbour of a 16-bit number is nearer to the exact one, or as near and even. Infinity is the next step."""
    bits = got.view(np.uint16)
    magnitude = bits & 0x7FFF
    infinite = int(np.array(np.inf, got.dtype).view(np.uint16))
    nan = np.isnan(exact)
    np.testing.assert_array_equal(magnitude > infinite, nan)
    np.testing.assert_array_equal(bits[~nan] >> 15, np.signbit(exact)[~nan])
    steps = np.arange(infinite + 2, dtype=np.uint16)  # magnitude bits -> number, in their order
    numbers = np.append(steps[:infinite].view(got.dtype).astype(np.float64), [0, 0])
    numbers[infinite] = 2 * numbers[infinite - 1] - numbers[infinite - 2]
    numbers[infinite + 1] = np.inf
    m, v = magnitude[~nan].astype(int), np.minimum(np.abs(exact[~nan].astype(np.float64)), numbers[infinite])
    here, below, above = (np.abs(v - numbers[i]) for i in (m, np.maximum(m - 1, 0), np.minimum(m + 1, infinite)))
    even = m % 2 == 0
    assert np.all((here < below) | (m == 0) | ((here == below) & even))
    assert np.all((here < above) | (m == infinite) | ((here == above) & even))


@pytest.mark.parametrize("stored", ["float16", "float32", "float64"])
@pytest.mark.parametrize(("shape", "axes", "groups", "param", "order"), [
    ((9000, 2048), (1,), 1, (1,), (0, 1)),
    ((180000, 49), (1,), 1, (1,), (0, 1)),
    ((5200, 41, 7, 7), (2, 3), 1, (1,), (0, 1, 2, 3)),  # rows of 49 with one scale each
    ((530000, 17), (1,), 1, (), (0, 1)),  # barely a line
    ((1100000, 9), (1,), 1, (1,), (0, 1)),
    ((140000, 64), (1,), 1, (1,), (0, 1)),  # whole lines
    ((45000, 192), (1,), 1, (1,), (0, 1)),
    ((40000, 5, 50), (2,), 1, (1, 2), (0, 1, 2)),  # of which those that share a scale do not follow each other
    ((30000, 300), (1,), 1, (1,), (0, 1)),
    ((32000, 272), (1,), 1, (1,), (0, 1)),
    ((1000, 64, 15, 19), (2, 3), 8, (1, 2), (0, 1, 2, 3)),
    ((1000, 64, 15, 19), (2, 3), 8, (1, 2), (0, 2, 3, 1)),
    ((300, 60, 30, 35), (2, 3), 1, (1,), (0, 1, 2, 3)),
    ((200, 600, 9, 10), (2, 3), 1, (1,), (0, 2, 3, 1)),  # columns in wider tiles
    ((100, 500, 14, 15), (2, 3), 1, (1,), (0, 2, 3, 1)),  # and in several chunks, of which the last has rows left over
    ((12, 1100, 30, 30), (2, 3), 10, (1, 2), (0, 2, 3, 1)),
])  # fmt: skip
def test_results_larger_than_the_cache_have_the_same_bits(shape, axes, groups, param, order, stored):
    """They are written around it. Every sample stands alone here, so a slice of few samples must come out alike."""
    stored = getattr(dtypes, stored)
    if stored.itemsize == 2:
        shape = (2 * shape[0], *shape[1:])
    rng = np.random.default_rng(0)
    different = min(97, shape[0])  # samples, which then come again
    memory = (rng.standard_normal((different, *(shape[i] for i in order[1:])), np.float32) * 2 + 3).astype(stored)
    x = np.resize(memory, [shape[i] for i in order]).transpose(np.argsort(order))
    assert x.nbytes > 1 << 25
    dy = x[::-1].copy("K")
    large, small = (
        plan((n, *shape[1:]), axes, groups, param, tuple(step // x.itemsize for step in x.strides))
        for n in (shape[0], 5)
    )
    s, b = rng.standard_normal((2, large.param_size), np.float32)
    y, stats = cpu.norm.forward(large, x, s, b, Equation())
    dx, ds, db = cpu.norm.backward(large, dy, x, stats, s, Equation())
    for rows in (slice(0, 5), slice(-5, None)):
        few, few_dy = np.empty_like(x[rows]), np.empty_like(x[rows])
        few[...], few_dy[...] = x[rows], dy[rows]
        few_y, few_stats = cpu.norm.forward(small, few, s, b, Equation())
        few_dx = cpu.norm.backward(small, few_dy, few, few_stats, s, Equation())[0]
        for got, want in ((y[rows], few_y), (dx[rows], few_dx)):
            np.testing.assert_array_equal(got, want)
    assert np.all(np.isfinite(ds))
    assert np.all(np.isfinite(db))


@pytest.mark.parametrize("given", ["s b", ""])
@pytest.mark.parametrize("stored", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("shape", [
    (40, 90, 30, 31),  # runs that begin within a line
    (580, 70, 7, 7),  # short ones: all channels walk along together
    (1100, 41, 6, 6),
    (4000, 5, 11, 11),
    (1700, 5, 15, 16),  # longer ones, of channels that no processor's own cache holds
])  # fmt: skip
def test_channels_larger_than_the_cache_have_the_same_bits(shape, stored, given):
    """The same for BatchNorm, where every channel stands alone."""
    stored = getattr(dtypes, stored)
    rng = np.random.default_rng(0)
    samples, channels, *image = shape
    samples *= 2 if stored.itemsize == 2 else 1
    x = (rng.standard_normal((samples, channels, *image), np.float32) * 2 + 3).astype(stored)
    x[:, 1] += stored.type(1000)
    x[:: samples // 4, 2] = 1000  # a shift guessed from four elements would be poor
    dy = x[::-1, ::-1].copy()
    assert x.nbytes > 6_000_000
    large, small = (plan((samples, n, *image), (0, 2, 3), 1, (1,)) for n in (channels, 4))
    s, b = None, None
    if given:
        s, b = rng.standard_normal((2, channels)).astype(dtypes.compute_type(x.dtype))
    for equation in (Equation(), Equation(centered=False)):
        y, stats = cpu.norm.forward(large, x, s, b, equation)
        dx, ds, db = cpu.norm.backward(large, dy, x, stats, s, equation)
        again = cpu.norm.apply(large, x, stats, s, b)
        np.testing.assert_array_equal(again, y)
        for some in (slice(0, 4), slice(-4, None)):
            few_x, few_dy = x[:, some].copy(), dy[:, some].copy()
            few_s, few_b = (s[some], b[some]) if given else (None, None)
            few_y, few_stats = cpu.norm.forward(small, few_x, few_s, few_b, equation)
            few = cpu.norm.backward(small, few_dy, few_x, few_stats, few_s, equation)
            np.testing.assert_array_equal(y[:, some], few_y)
            for got, want in zip((dx[:, some], ds[some], db[some]), few, strict=True):
                np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("shape", [(130_000, 64), (27_000, 301), (8100, 1001), (2050, 4001), (30, 70, 65, 61)])
@pytest.mark.parametrize("stored", ["float16", "bfloat16"])
def test_16_bits_from_memory_are_float32_rounded_once(shape, stored):
    """Widened and rounded in registers, rows and channels alike; extremes in one row stay there."""
    stored = getattr(dtypes, stored)
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(shape, np.float32) * 2 + 3).astype(stored)
    rows = x if x.ndim == 2 else x.swapaxes(0, 1)
    rows[3], rows[5, ..., 7], rows[7, ..., -1] = rows[3] * stored.type(1e-6), np.nan, np.inf
    dy = x[::-1].copy()
    nest = plan(shape, (1,) if x.ndim == 2 else (0, 2, 3), 1, (1,))
    s, b = rng.standard_normal((2, nest.param_size), np.float32)
    results = []
    for storage in (stored, np.float32):
        with np.errstate(over="ignore"):
            stored_x, stored_dy = x.astype(storage), dy.astype(storage)
        y, stats = cpu.norm.forward(nest, stored_x, s, b, Equation())
        results.append((y, stats.block, *cpu.norm.backward(nest, stored_dy, stored_x, stats, s, Equation())))
    narrow, wide = results
    assert np.isnan(wide[0]).mean() < 0.1
    for got, want in zip(narrow, wide, strict=True):
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(got.astype(np.float32), want.astype(got.dtype).astype(np.float32))


@functools.lru_cache(maxsize=1)  # the tests with one width and one `centered` follow each other
def rows_from_memory(width, centered):
    """x, dy, and in float64: 1/std, xhat, and the gradients of s and b, which depend on neither."""
    rng = np.random.default_rng(0)
    size = 8_100_000 if width in (1001, 1555) else 2_500_000  # that many, and no cache holds them
    x = rng.standard_normal((size // width, width), np.float32) * 2 + 3
    x[5::100, :: width // 4] = 1000  # a shift guessed from four elements would be poor
    dy = rng.standard_normal(x.shape, np.float32)
    xhat = x.astype(np.float64)
    if centered:
        xhat -= xhat.mean(1, keepdims=True)
    rstd = 1 / np.sqrt(np.square(xhat).mean(1, keepdims=True) + Equation().eps)
    xhat *= rstd
    ds, db = np.einsum("ij,ij->j", dy, xhat), dy.sum(0, dtype=np.float64)
    for array in (x, dy, rstd, xhat, ds, db):
        array.flags.writeable = False
    return x, dy, rstd, xhat, ds, db


@pytest.mark.parametrize("given", ["s b", "s", "b", ""])
@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("width", [49, 64, 126, 1000, 1001, 1555, 4001, 4096])
def test_rows_from_memory_around_the_cache(width, centered, given):
    """Rows that begin and end within a line of 64 bytes, and whole ones; with each combination of parameters."""
    x, dy, rstd, xhat, want_ds, want_db = rows_from_memory(width, centered)
    rng = np.random.default_rng(1)
    s, b = (rng.standard_normal(width, np.float32) if name in given.split() else None for name in "sb")
    nest = plan(x.shape, (1,), 1, (1,), (width, 1))
    equation = Equation(centered=centered)
    y, stats = cpu.norm.forward(nest, x, s, b, equation)
    dx, ds, db = cpu.norm.backward(nest, dy, x, stats, s, equation)
    expected = xhat * (1.0 if s is None else s) + (0.0 if b is None else b)
    np.testing.assert_allclose(y, expected, rtol=1e-6, atol=3e-6)
    g = dy * (1.0 if s is None else s.astype(np.float64))
    mean_g = g.mean(1, keepdims=True) if centered else 0.0
    expected = rstd * (g - mean_g - xhat * (g * xhat).mean(1, keepdims=True))
    np.testing.assert_allclose(dx, expected, rtol=1e-6, atol=3e-6)
    np.testing.assert_allclose(ds, want_ds, rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(db, want_db, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(
    ("shape", "axes", "groups", "param"),
    [
        ((66, 16, 49, 51), (2, 3), 8, (1, 2)),  # runs that begin within a line, each with a separate scale
        ((66, 16, 50, 50), (2, 3), 8, (1,)),
        ((72, 96, 28, 28), (2, 3), 8, (1, 2)),  # runs of whole lines, some to a chunk
        ((90, 72, 16, 16), (2, 3), 8, (1, 2)),
        ((900, 72, 7, 7), (2, 3), 2, (1, 2)),  # short runs, more than go together
        ((900, 72, 7, 9), (2, 3), 2, (1,)),
        ((900, 72, 7, 7), (2, 3), 72, (1,)),  # rows with a scale each
        ((72, 8, 65, 66), (2, 3), 1, (1,)),  # runs of two chunks
        ((300, 6001), (1,), 1, (1,)),
        ((84, 32001), (1,), 1, (1,)),
        ((252, 3, 2501), (1, 2), 1, (2,)),  # runs that share their scales
        ((252, 3, 2501), (1, 2), 1, ()),
    ],
)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("centered", [True, False])
def test_long_rows_from_memory(shape, axes, groups, param, dtype, centered):
    """Results that go around the cache have the bits of those that stay in it, and the sums of all rows are right."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(shape, np.float32) * 2 + 3).astype(dtype)
    x[5::100, ..., :: shape[-1] // 4] = 1000  # a shift guessed from four elements would be poor
    dy = rng.standard_normal(shape, np.float32).astype(dtype)
    if dtype == "float16":
        x, dy = np.concatenate([x, x]), np.concatenate([dy, dy])
    equation = Equation(centered=centered)
    large, small = (plan((n, *shape[1:]), axes, groups, param) for n in (len(x), 3))
    s, b = rng.standard_normal((2, large.param_size)).astype(dtypes.compute_type(x.dtype))
    y, stats = cpu.norm.forward(large, x, s, b, equation)
    dx, ds, db = cpu.norm.backward(large, dy, x, stats, s, equation)
    sums = np.zeros((2, large.param_size))
    for first in range(0, len(x), 3):
        some = slice(first, first + 3)
        near_y, near_stats = cpu.norm.forward(small, x[some], s, b, equation)
        near_dx, *near_sums = cpu.norm.backward(small, dy[some], x[some], near_stats, s, equation)
        np.testing.assert_array_equal(y[some], near_y)
        np.testing.assert_array_equal(dx[some], near_dx)
        sums += near_sums
    np.testing.assert_allclose((ds, db), sums, rtol=1e-5, atol=1e-2)


@pytest.mark.parametrize(("shape", "param"), [((60_000, 40, 4), (1,)), ((1, 2_200_000, 4), (1,)), ((2_200_000, 4), ())])
def test_gradients_of_millions_of_rows_are_added_up(shape, param, threads):
    """In steps, between which Ctrl-C is answered, and by all threads where they can: to the same bits."""
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((2, *shape), np.float32)
    nest = plan(shape, (len(shape) - 1,), 1, param)
    s = np.ones(nest.param_size, np.float32)
    stats = cpu.norm.forward(nest, x, s, None, Equation())[1]
    results = []
    for count in (1, 3):
        threads(count)
        results.append(cpu.norm.backward(nest, dy, x, stats, s, Equation())[1:])
    for one, three in zip(*results, strict=True):
        np.testing.assert_array_equal(one, three)
    others = tuple(axis for axis in range(len(shape)) if axis not in param)
    wide = x.astype(np.float64)
    xhat = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(results[0][0], (dy * xhat).sum(others).ravel(), rtol=1e-5, atol=2e-3)
    np.testing.assert_allclose(results[0][1], dy.sum(others, dtype=np.float64).ravel(), rtol=1e-5, atol=2e-3)


def test_backends_have_the_functions_of_the_protocol():
    names = {name for name in vars(NormBackend) if not name.startswith("_")}
    for module in (reference.norm, cpu.norm):
        assert names <= set(vars(module))


def test_kernels_refuse_a_nest_that_does_not_fit():
    nest = plan((2, 3, 2, 3, 2), (0, 2, 4))
    with pytest.raises(ValueError, match="more than two loops"):
        cpu.norm.moments(nest, np.ones((2, 3, 2, 3, 2), np.float32), True)
