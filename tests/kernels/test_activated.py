"""A ReLU and a residual in the pass of a normalization: the bits of three operations one after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minorm_ext
from minorm.devices import dtypes
from minorm.kernels import cpu, reference
from minorm.kernels.activated import ActivatedBackend
from minorm.kernels.checked import CheckedBackend, resolve_backend
from minorm.kernels.masked import MaskedBackend
from minorm.kernels.partial import PartialBackend
from minorm.normalization.equation import Equation
from minorm.normalization.nest import plan
from tests.kernels.test_norm_bits import nests

TYPES = ["float16", "bfloat16", "float32", "float64"]
CASES = {  # of every strategy, and of short rows every way to take their parameters
    "long rows": ((4, 3, 40, 70), (0, 2, 3), 1, (1,)),
    "short rows with one parameter": ((9, 6, 75), (2,), 1, (1,)),
    "short rows that share theirs": ((40, 75), (1,), 1, (1,)),
    "narrow rows": ((40, 5), (1,), 1, (1,)),
    "rows with a parameter for each element": ((3, 8333), (1,), 1, (1,)),
    "groups": ((3, 6, 5, 9), (2, 3), 3, (1, 2)),
    "columns": ((40, 24), (0,), 1, (1,)),
    "columns that share a row's": ((5, 40, 8), (1,), 1, (1,)),
    "spatial": ((5, 6, 7, 8), (0,), 1, (1, 2, 3)),
}
STREAMED = {  # results around the cache
    "long rows": ((600, 2, 63, 71), (0, 2, 3), 1, (1,)),
    "vectors": ((40_000, 64), (1,), 1, (1,)),
    "gathered": ((40_000, 72), (1,), 1, (1,)),
    "columns": ((40_001, 72), (0,), 1, (1,)),
}


def bits(array):
    return array.view({2: np.uint16, 4: np.uint32, 8: np.uint64}[array.itemsize])


def equal(got, want):
    """Assert equal bits; any NaN equals another, as the 16-bit types have many."""
    assert (got is None) == (want is None)
    if got is not None:
        assert got.dtype == want.dtype
        assert np.all((bits(got) == bits(want)) | ((got != got) & (want != want)))


def data(nest, dtype, rng, special=True):
    x, dy, residual = rng.standard_normal((3, *nest.given_shape)).astype(dtype)
    if special:
        dy.flat[rng.integers(dy.size)], residual.flat[rng.integers(x.size)] = np.nan, np.nan
        residual.flat[rng.integers(x.size)] = -np.inf
    s, b = rng.standard_normal((2, nest.param_size)).astype(dtype)
    return x, dy, residual, s, b


def compare(norm, nest, x, dy, residual, s, b, equation, **options):
    two = ActivatedBackend(norm)
    y, stats = norm.forward(nest, x, s, b, equation, activation="relu", residual=residual, **options)
    want, stats2 = two.forward(nest, x, s, b, equation, activation="relu", residual=residual, **options)
    equal(y, want)
    equal(stats.block, stats2.block)
    equal(norm.apply(nest, x, stats, s, b, activation="relu", residual=residual, **options), want)
    for needs in ((True, True), (True, False), (False, True), (False, False)):
        dres, dres2 = np.full_like(x, 7), np.full_like(x, 7)
        given, given2 = ({} if residual is None else {"dresidual": array} for array in (dres, dres2))
        got = norm.backward(nest, dy, x, stats, s, equation, needs, y=y, **given, **options)
        for g, w in zip(
            got, two.backward(nest, dy, x, stats, s, equation, needs, y=y, **given2, **options), strict=True
        ):
            equal(g, w)
        equal(dres, dres2)


class Shaped:
    """A nest and the shape that it was made for."""

    def __init__(self, case):
        shape, axes, groups, param = case
        self.nest, self.given_shape = plan(shape, axes, groups, param), shape
        self.param_size = self.nest.param_size


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("norm", [cpu.norm, reference.norm], ids=["the CPU's", "the reference's"])
def test_one_pass_has_the_bits_of_three(norm, case, dtype, residual, rng):
    found = Shaped(case)
    x, dy, other, s, b = data(found, dtypes.check(dtype), rng)
    with np.errstate(invalid="ignore"):
        compare(norm, found.nest, x, dy, other if residual else None, s, b, Equation())


@pytest.mark.parametrize("case", STREAMED.values(), ids=STREAMED)
def test_around_the_cache(case, rng):
    found = Shaped(case)
    x, dy, other, s, b = data(found, np.float32, rng, special=False)
    compare(cpu.norm, found.nest, x, dy, other, s, b, Equation())


@given(nest=nests(), dtype=st.sampled_from(TYPES), rms=st.booleans(), residual=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=40)
def test_any_loops_on_every_level(nest, dtype, rms, residual, seed):
    shape, axes, groups, param, order = nest
    found = Shaped((shape, axes, groups, param))
    rng = np.random.default_rng(seed)
    x, dy, other, s, b = data(found, dtypes.check(dtype), rng)
    strides = np.empty([shape[i] for i in order], np.int8).transpose(np.argsort(order)).strides
    laid = plan(shape, axes, groups, param, strides)
    if not laid.fits:
        return
    x, dy, other = (np.ascontiguousarray(a.transpose(order)).transpose(np.argsort(order)) for a in (x, dy, other))
    before, kernels = minorm_ext.get_num_threads(), cpu.norm._kernels
    try:
        for level in minorm_ext.levels():
            cpu.norm._kernels = minorm_ext.kernels("norm", level)
            for threads in (1, 3):
                minorm_ext.set_num_threads(threads)
                with np.errstate(invalid="ignore", over="ignore"):
                    compare(cpu.norm, laid, x, dy, other if residual else None, s, b, Equation(centered=not rms))
    finally:
        cpu.norm._kernels = kernels
        minorm_ext.set_num_threads(before)


def test_what_is_computed_in_another_type_is_three_operations(rng):
    found = Shaped(CASES["long rows"])
    x, dy, other, s, b = data(found, np.float32, rng)
    assert not cpu.norm.is_one_pass(x, dtypes.float64)
    compare(cpu.norm, found.nest, x, dy, other, s, b, Equation(), dtype=dtypes.float64)


def test_arrays_that_are_one(rng):
    found = Shaped(CASES["long rows"])
    x, _, _, s, b = data(found, np.float32, rng, special=False)
    compare(cpu.norm, found.nest, x, x, x, s, b, Equation())  # a residual that is x, a dy that is x
    y, stats = cpu.norm.forward(found.nest, x, s, b, Equation(), activation="relu")
    got = cpu.norm.backward(found.nest, y, x, stats, s, Equation(), y=y)
    for g, w in zip(got, cpu.norm.backward(found.nest, y, x, stats, s, Equation()), strict=True):
        equal(g, w)


def test_who_does_it(rng):
    x = rng.standard_normal((4, 3)).astype(np.float32)
    assert resolve_backend(x, None, activation="relu") is cpu.norm
    for backend, masked, inner in (
        (None, True, cpu.norm),
        (PartialBackend(), False, CheckedBackend),
        (PartialBackend(), True, MaskedBackend),
    ):
        found = resolve_backend(x, backend, masked, activation="relu")
        assert isinstance(found, ActivatedBackend)
        assert found.norm is inner or isinstance(found.norm, inner)
    assert isinstance(resolve_backend(x, reference.norm, activation="relu"), CheckedBackend)
