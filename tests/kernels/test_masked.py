"""Masks around kernels that know none: the same as the reference, which leaves the elements out, and as float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minorm.kernels import cpu, reference
from minorm.kernels.checked import CheckedBackend
from minorm.kernels.masked import MaskedBackend
from minorm.kernels.partial import PartialBackend
from minorm.kernels.protocol import Statistics
from minorm.kernels.reference.norm import counts
from minorm.normalization.equation import Equation
from minorm.normalization.nest import plan

BACKENDS = {
    "the CPU's": cpu.norm,
    "the reference's": reference.norm,
    "one's own": CheckedBackend(PartialBackend(moments=reference.norm.moments)),
}
NESTS = {
    "batch": ((4, 3, 5, 7), (0, 2, 3), 1, (1,)),
    "instance": ((4, 3, 5), (2,), 1, (1,)),
    "groups": ((3, 6, 5), (2,), 3, (1, 2)),
    "layer": ((9, 16), (1,), 1, (1,)),
    "columns": ((40, 5), (0,), 1, (1,)),
}
EQUATIONS = [Equation(), Equation(centered=False), Equation(1e-9, guard=True)]


def data(case, rng, dtype=np.float32, share=0.5, offset=0.0):
    shape, axes, groups, param = case
    nest = plan(shape, axes, groups, param)
    x, dy = rng.standard_normal((2, *shape)).astype(dtype)
    mask = rng.random(shape) < share
    x = (x + offset).astype(dtype)
    x[~mask], dy[~mask] = np.nan, np.inf
    s, b = rng.standard_normal((2, nest.param_size)).astype(dtype)
    return nest, x, dy, s, b, mask


def close(got, want, bound=3e-6):
    for a, e in zip(got, want, strict=True):
        assert (a is None) == (e is None)
        if e is not None:
            np.testing.assert_allclose(a, e, atol=bound * (1 + np.abs(e).max(initial=0)), rtol=0)


@pytest.mark.parametrize("share", [0, 0.05, 0.5, 1])
@pytest.mark.parametrize("equation", EQUATIONS, ids=str)
@pytest.mark.parametrize("case", NESTS.values(), ids=NESTS)
@pytest.mark.parametrize("norm", BACKENDS.values(), ids=BACKENDS)
def test_every_function(norm, case, equation, share, rng):
    nest, x, dy, s, b, mask = data(case, rng, share=share, offset=2)
    masked, twin = MaskedBackend(norm), reference.norm
    k, d, var = masked.moments(nest, x, equation.centered, mask=mask)
    want = twin.moments(nest, x, equation.centered, mask=mask)
    close((k + d, var), (want[0] + want[1], want[2]))
    y, stats = masked.forward(nest, x, s, b, equation, mask=mask)
    expected, exact = twin.forward(nest, x, s, b, equation, mask=mask)
    close((y, stats.rstd * (stats.var > 0)), (expected, exact.rstd * (exact.var > 0)))
    np.testing.assert_array_equal(stats.count, exact.count)
    np.testing.assert_array_equal(stats.count, counts(nest, mask))
    close((masked.apply(nest, x, exact, s, b, mask=mask),), (expected,))
    sums = twin.grad_sums(nest, dy, x, exact, s, mask=mask)
    close(masked.grad_sums(nest, dy, x, exact, s, mask=mask), sums, 1e-5)
    of_parameters = twin.grad_params(nest, dy, x, exact, mask=mask)
    close(masked.grad_params(nest, dy, x, exact, mask=mask), of_parameters, 1e-5)
    for given_sums in (sums, (None, sums[1]), (None, None)):
        arguments = (nest, dy, x, exact, s, *given_sums)
        close((masked.grad_input(*arguments, mask=mask),), (twin.grad_input(*arguments, mask=mask),), 1e-5)
    for needs in ((True, True), (False, True), (True, False)):
        arguments = (nest, dy, x, exact, s, equation, needs)
        close(masked.backward(*arguments, mask=mask), twin.backward(*arguments, mask=mask), 1e-5)


@given(st.integers(0, 2**32 - 1), st.sampled_from(list(NESTS)), st.sampled_from([0, 1e4, 1e6]), st.floats(0, 1))
def test_far_from_0(seed, name, offset, share):
    rng = np.random.default_rng(seed)
    nest, x, dy, s, b, mask = data(NESTS[name], rng, share=share, offset=offset)
    wide = [a.astype(np.float64) for a in (x, dy, s, b)]
    for norm in (MaskedBackend(cpu.norm), MaskedBackend(reference.norm)):
        y, stats = norm.forward(nest, x, s, b, Equation(), mask=mask)
        exact, e = reference.norm.forward(nest, wide[0], wide[2], wide[3], Equation(), mask=mask)
        close((y, stats.var), (exact, e.var), 5e-6)
        got = norm.backward(nest, dy, x, stats, s, Equation(), mask=mask)
        close(got, reference.norm.backward(nest, wide[1], wide[0], e, wide[2], Equation(), mask=mask), 2e-5)


@pytest.mark.parametrize("outlier", [1e3, 1e6, -1e9])
def test_a_first_element_far_from_the_others_is_filled_again(outlier, rng):
    nest = plan((3, 4000), (1,), 1, ())
    x = rng.standard_normal((3, 4000)).astype(np.float32)
    mask = rng.random((3, 4000)) < 0.02
    for row in range(3):
        x[row, mask[row].argmax()] = outlier
    calls = []

    def moments(*args, **options):
        calls.append(args)
        return reference.norm.moments(*args, **options)

    k, d, var = MaskedBackend(PartialBackend(moments=moments)).moments(nest, x, True, mask=mask)
    assert len(calls) == 2
    gathered = [x[row][mask[row]].astype(np.float64) for row in range(3)]
    np.testing.assert_allclose(k + d, [v.mean() for v in gathered], rtol=1e-7)
    np.testing.assert_allclose(var, [v.var() for v in gathered], rtol=1e-6)


def test_nothing_is_filled_twice_without_need(rng):
    nest, x, _, _, _, mask = data(NESTS["layer"], rng, share=0.7, offset=1e5)
    x[np.arange(9), mask.argmax(1)] = 1e5
    calls = []

    def moments(*args, **options):
        calls.append(args)
        return reference.norm.moments(*args, **options)

    MaskedBackend(PartialBackend(moments=moments)).moments(nest, x, True, mask=mask)
    assert len(calls) == 1


def test_a_given_mean_beyond_the_type_of_x():
    nest = plan((2, 1), (0,), 1, (1,))
    x, mask = np.array([[np.nan], [6e4]], np.float16), np.array([[False], [True]])
    stats = Statistics.of(*(np.array([v]) for v in (1e6, 0.0, 1e10, 1e-5)))
    ones = np.ones((2, 1), np.float16)
    ds, db = MaskedBackend(reference.norm).grad_params(nest, ones, x, stats, mask=mask)
    np.testing.assert_allclose((ds, db), [[-9.4], [1]], rtol=1e-3)
