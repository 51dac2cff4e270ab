"""Normalizations with a mask beside float64 formulas over the elements that count, gathered row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minorm as mn
import minorm.functional as F
from minorm.functional.norm import checks
from minorm.kernels import reference
from minorm.kernels.partial import PartialBackend
from minorm.tensor.tensor import Tensor
from minorm.testing import gradcheck


@dataclass(frozen=True)
class Case:
    """One normalization of x (4, 6, 5, 7): the function, its axes, and the shape of its parameters."""

    run: Any  # (x, weight, bias, mask, **options) -> y
    axes: tuple[int, ...]
    groups: int = 1
    params: tuple[int, ...] | None = (6,)
    eps: float = 1e-5
    centered: bool = True
    guard: bool = False


SHAPE = (4, 6, 5, 7)
CASES = {
    "batch": Case(lambda x, w, b, m, **o: F.batch_norm(x, None, None, w, b, True, mask=m, **o), (0, 2, 3)),
    "places": Case(
        lambda x, w, b, m, **o: F.batch_norm(x, None, None, w, b, True, mask=m, **o), (0,), params=SHAPE[1:]
    ),
    "instance": Case(lambda x, w, b, m, **o: F.instance_norm(x, None, None, w, b, mask=m, **o), (2, 3)),
    "group": Case(lambda x, w, b, m, **o: F.group_norm(x, 3, w, b, mask=m, **o), (2, 3), groups=3),
    "a group each": Case(lambda x, w, b, m, **o: F.group_norm(x, 3, w, b, mask=m, **o), (2, 3), groups=3, params=(3,)),
    "layer": Case(lambda x, w, b, m, **o: F.layer_norm(x, (5, 7), w, b, mask=m, **o), (2, 3), params=(5, 7)),
    "tokens": Case(lambda x, w, b, m, **o: F.layer_norm(x, 7, w, b, mask=m, **o), (3,), params=(7,)),
    "rms": Case(
        lambda x, w, b, m, **o: F.rms_norm(x, 7, w, 1e-5, mask=m, **o), (3,), params=(7,), centered=False
    ),
    "mean variance": Case(
        lambda x, w, b, m, **o: F.mean_variance_norm(x, (0, 2, 3), mask=m, **o), (0, 2, 3), params=None, eps=1e-9,
        guard=True,
    ),
}  # fmt: skip
MASKS = {
    "padded": lambda rng, shape: np.arange(shape[-1]) < rng.integers(1, shape[-1] + 1, shape[0]).reshape(-1, 1, 1, 1),
    "tokens": lambda rng, shape: rng.random((shape[0], 1, shape[2], 1)) < 0.5,
    "half": lambda rng, shape: rng.random(shape) < 0.5,
    "few": lambda rng, shape: rng.random(shape) < 0.02,
    "one": lambda rng, shape: np.arange(np.prod(shape)).reshape(shape) == 17,
    "all": lambda rng, shape: np.ones((1, 1, 1, 1), bool),
    "none": lambda rng, shape: np.zeros(shape[-1:], bool),
}
GARBAGE = (np.nan, np.inf, -np.inf, 3e38)


def oracle(case: Case, x, w, b, mask, dy):
    """y, dx, dw, db, and mean, var and count by row: each row's elements that count, gathered, in float64."""
    mask = np.broadcast_to(mask, x.shape)
    x, dy = (np.where(mask, a, 0).astype(np.float64) for a in (x, dy))
    rows = np.zeros(x.shape, int)
    kept = [i for i in range(x.ndim) if i not in case.axes and not (i == 1 and case.groups > 1)]
    for i in kept:
        rows = rows * x.shape[i] + np.arange(x.shape[i]).reshape([-1 if j == i else 1 for j in range(x.ndim)])
    if case.groups > 1:
        part = np.arange(x.shape[1]) // (x.shape[1] // case.groups)
        rows = rows * case.groups + part.reshape(1, -1, *[1] * (x.ndim - 2))
    if case.params is None:
        scale, shift, places = np.ones(x.shape), np.zeros(x.shape), None
    else:
        if len(case.params) == 1 and case.params[0] in (x.shape[1], case.groups) and case.axes != (3,):
            repeat = x.shape[1] // case.params[0]
            places = np.arange(x.shape[1]).reshape(1, -1, *[1] * (x.ndim - 2)) // repeat
        else:
            places = np.arange(np.prod(case.params)).reshape(case.params)
        places = np.broadcast_to(places, x.shape)
        scale, shift = (p.astype(np.float64).reshape(-1)[places] for p in (w, b))
        shift = shift if case.centered else np.zeros(x.shape)  # RMSNorm has no bias
    y, dx, xhat = (np.zeros(x.shape) for _ in range(3))
    statistics = []
    for row in range(rows.max() + 1):
        at = (rows == row) & mask
        n, values, g = int(at.sum()), x[at], (dy * scale)[at]
        mean = values.mean() if n and case.centered else 0.0
        var = ((values - mean) ** 2).mean() if n else 0.0
        if n <= (1 if case.centered else 0) or (case.guard and var == 0):
            rstd = 0.0
        else:
            rstd = 1 / (np.sqrt(var) + case.eps) if case.guard else 1 / np.sqrt(var + case.eps)
        xhat[at] = (values - mean) * rstd
        if n:
            slope = (np.sqrt(var) + case.eps) / np.sqrt(var) if case.guard and var else 1.0
            mean_g = g.mean() if case.centered else 0.0
            dx[at] = rstd * (g - mean_g - xhat[at] * (g * xhat[at]).mean() * slope)
        y[at] = xhat[at] * scale[at] + shift[at]
        statistics.append((mean, var, n))
    dw = db = None
    if places is not None:
        dw, db = (
            np.bincount(places[mask], terms[mask], np.prod(case.params)).reshape(case.params)
            for terms in (dy * xhat, dy)
        )
    return y, dx, dw, db, np.array(statistics)


def channels_last(x):
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)


def inputs(case, rng, mask, dtype=np.float32, offset=0.0, last=False):
    """x and dy with garbage where the mask is False, weight and bias."""
    x = (rng.standard_normal(SHAPE) + offset).astype(dtype)
    dy = rng.standard_normal(SHAPE).astype(dtype)
    hidden = ~np.broadcast_to(mask, SHAPE)
    with np.errstate(over="ignore"):
        for array in (x, dy):
            array[hidden] = np.array(GARBAGE).astype(dtype)[rng.integers(0, len(GARBAGE), hidden.sum())]
    w, b = rng.standard_normal((2, *(case.params or (1,)))).astype(dtype)
    return (*(channels_last(a) if last else a for a in (x, dy)), w, b)


def results(case, x, dy, w, b, mask, **options):
    """y, dx, dw and db of ours."""
    X, W, B = (Tensor(a.copy("K"), True) for a in (x, w, b))
    y = case.run(X, W, B, Tensor(np.asarray(mask)), **options)
    y.backward(Tensor(dy))
    return [y.numpy(), *(None if t.grad is None else t.grad.numpy() for t in (X, W, B))]


def close(got, want, bound):
    for a, e in zip(got, want, strict=False):
        if a is not None and e is not None:
            np.testing.assert_allclose(a, e, atol=bound * (1 + np.abs(e).max()), rtol=0)


@pytest.mark.parametrize("offset", [0, 1e4, 1e6])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_beside_what_counts(case, mask, offset, rng):
    mask = mask(rng, SHAPE)
    for last in (False, True):
        x, dy, w, b = inputs(case, rng, mask, offset=offset, last=last)
        found = results(case, x, dy, w, b, mask)
        assert np.isfinite(found[0]).all()
        close(found, oracle(case, x, w, b, mask, dy), 5e-6)
        hidden = ~np.broadcast_to(mask, SHAPE)
        assert not found[0][hidden].any()
        assert not found[1][hidden].any()
        assert found[0].strides == x.strides


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_other_types(case, dtype, rng):
    mask = MASKS["half"](rng, SHAPE)
    x, dy, w, b = inputs(case, rng, mask, dtype, offset=3)
    found = results(case, x, dy, w, b, mask)
    assert found[0].dtype == dtype
    close([a if a is None else a.astype(np.float64) for a in found], oracle(case, x, w, b, mask, dy),
          1e-12 if dtype == np.float64 else 2 * float(ml_dtypes.finfo(dtype).eps))  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_compute_dtype(case, rng):
    mask = MASKS["padded"](rng, SHAPE)
    x, dy, w, b = inputs(case, rng, mask, offset=100)
    want = oracle(case, x, w, b, mask, dy)
    wide = results(case, x, dy, w, b, mask, compute_dtype=np.float64)
    close(wide, want, 1.2e-7)
    np.testing.assert_array_equal(wide[0], want[0].astype(np.float32))


@pytest.mark.parametrize("outlier", [1e3, 1e6, -1e8])
def test_the_first_element_is_an_outlier(outlier, rng):
    case, mask = CASES["batch"], MASKS["half"](rng, SHAPE)
    x, dy, w, b = inputs(case, rng, mask, offset=5)
    for c in range(SHAPE[1]):
        n, *place = np.argwhere(mask[:, c])[0]
        x[(n, c, *place)] = outlier
    close(results(case, x, dy, w, b, mask), oracle(case, x, w, b, mask, dy), 5e-6)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_masked_changes_nothing(case, rng):
    mask = MASKS["padded"](rng, SHAPE)
    first = inputs(case, rng, mask)
    hidden = ~np.broadcast_to(mask, SHAPE)
    second = [a.copy() for a in first]
    second[0][hidden], second[1][hidden] = 7, -3
    for a, b in zip(results(case, *first, mask), results(case, *second, mask), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_full_mask_is_no_mask(case, rng):
    full = np.ones(SHAPE, bool)
    given = inputs(case, rng, full, offset=10)
    X = [Tensor(a.copy(), True) for a in (given[0], *given[2:])]
    y = case.run(*X, None)
    y.backward(Tensor(given[1]))
    close(results(case, *given, full), [y.numpy(), *(t.grad if t.grad is None else t.grad.numpy() for t in X)], 2e-6)


@pytest.mark.parametrize(  # with the guard, one element has no variance whose root could be differentiated
    ("name", "mask"),
    [
        (n, m)
        for n in CASES
        for m in ("padded", "half", "few", "one")
        if n != "mean variance" or m in ("padded", "half")
    ],
)
def test_gradients(name, mask, rng):
    case = CASES[name]
    mask = MASKS[mask](rng, SHAPE)
    x, _, w, b = inputs(case, rng, mask, np.float64)
    part = np.nan_to_num(x, nan=9.0, posinf=9.0, neginf=9.0)
    part[np.abs(part) > 1e30] = 9.0
    index = (slice(2), slice(None), slice(3), slice(None))
    if case.params in (SHAPE[1:], (5, 7)):
        index = (slice(2),)
    m = Tensor(np.ascontiguousarray(np.broadcast_to(mask, SHAPE)[index]))
    f = (lambda x, w, b: case.run(x, w, b, m)) if case.params else (lambda x: case.run(x, None, None, m))
    arrays = [np.ascontiguousarray(part[index]), w, b]
    assert gradcheck(f, *arrays[: 3 if case.params else 1]) < 1e-6


@given(
    st.integers(0, 2**32 - 1), st.lists(st.integers(1, 5), min_size=2, max_size=5), st.data(), st.sampled_from([0, 1e4])
)
def test_any_shape_and_mask(seed, shape, data, offset):
    rng = np.random.default_rng(seed)
    shape = tuple(shape)
    tail = shape[data.draw(st.integers(0, len(shape))) :]
    lengths = [data.draw(st.sampled_from([1, n])) for n in tail]
    mask = np.asarray(rng.random(lengths) < data.draw(st.sampled_from([0.1, 0.5, 0.9])))
    axes = tuple(sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    order = data.draw(st.permutations(range(len(shape))))
    x = (rng.standard_normal(shape) + offset).astype(np.float32)
    x = np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))
    x[~np.broadcast_to(mask, shape)] = np.nan
    dy = rng.standard_normal(shape).astype(np.float32)
    case = Case(lambda x, w, b, m: F.mean_variance_norm(x, axes, 1e-3, mask=m), axes, params=None, eps=1e-3, guard=True)
    want = oracle(case, x, None, None, mask, dy)
    X = Tensor(x, True)
    y = case.run(X, None, None, Tensor(mask))
    y.backward(Tensor(dy))
    close([y.numpy(), X.grad.numpy()], want, 2e-5)


# Running statistics


@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("momentum", [0.9, None])
@pytest.mark.parametrize("name", ["batch", "instance"])
def test_running_statistics(name, momentum, unbiased, rng):
    mask = rng.random(SHAPE) < 0.3
    mask[:, 1] = False  # a channel without elements
    mask[:, 2] = False
    mask[3, 2, 1, 4] = True  # one with a single one
    mask[2] = False  # a sample without
    case = CASES[name]
    x, dy, w, b = inputs(case, rng, mask, offset=2)
    mean, var = rng.standard_normal(6), rng.uniform(1, 2, 6)
    M, V, batches = Tensor(mean.copy()), Tensor(var.copy()), mn.tensor(3)
    options = {"num_batches_tracked": batches, "unbiased_running_var": unbiased, "mask": Tensor(mask)}
    function = F.batch_norm if name == "batch" else F.instance_norm
    function(Tensor(x), M, V, Tensor(w), Tensor(b), True, momentum, **options)
    assert batches.item() == 4
    found = oracle(case, x, w, b, mask, dy)[4].reshape(-1, 6, 3)  # (samples or 1, channels, (mean, var, n))
    keep = 0.75 if momentum is None else momentum
    for c in range(6):
        has = [row for row in found[:, c] if row[2] > 0]
        if not has:
            assert M.numpy()[c] == mean[c]
            assert V.numpy()[c] == var[c]
            continue
        new = np.mean([v * (n / max(n - 1, 1) if unbiased else 1) for _, v, n in has])
        np.testing.assert_allclose(M.numpy()[c], mean[c] * keep + (1 - keep) * np.mean([m for m, _, _ in has]), 1e-6)
        np.testing.assert_allclose(V.numpy()[c], var[c] * keep + (1 - keep) * new, 1e-6)


@pytest.mark.parametrize("function", [F.batch_norm, F.instance_norm])
def test_a_batch_without_elements_changes_nothing(function, rng):
    x = Tensor(np.full((2, 3, 4), np.nan, np.float32), True)
    mean, var, batches = mn.ones(3), mn.full((3,), 2.0), mn.tensor(5)
    y = function(x, mean, var, None, mn.ones(3), True, mask=mn.zeros((), dtype=mn.bool), num_batches_tracked=batches)
    y.sum().backward()
    assert not y.numpy().any()
    assert not x.grad.numpy().any()
    assert (mean.numpy() == 1).all()
    assert (var.numpy() == 2).all()
    assert batches.item() == 5


def test_one_value_is_no_error_under_a_mask():
    x, mask = Tensor(np.float32([[3.0, np.nan]]), True), Tensor(np.array([[True, False]]))
    y = F.batch_norm(x, None, None, None, mn.tensor([0.5, 0.5]), True, mask=mask)
    y.sum().backward()
    np.testing.assert_array_equal(y.numpy(), [[0.5, 0]])
    np.testing.assert_array_equal(x.grad.numpy(), 0)


# Evaluation


@pytest.mark.parametrize("name", ["batch", "instance"])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_evaluation(name, mask, rng):
    mask = np.broadcast_to(mask(rng, SHAPE), SHAPE)
    x, dy, w, b = inputs(CASES["batch"], rng, mask)
    mean, var = rng.standard_normal(6).astype(np.float32), rng.uniform(1, 2, 6).astype(np.float32)
    tensors = [Tensor(a.copy(), True) for a in (x, mean, var, w, b)]
    X, M, V, W, B = tensors
    function = F.batch_norm if name == "batch" else F.instance_norm
    y = function(X, M, V, W, B, False, mask=Tensor(np.ascontiguousarray(mask)))
    y.backward(Tensor(dy))

    whole = [Tensor(np.where(mask, a, 0).astype(np.float64), True) for a in (x,)]
    whole += [Tensor(a.astype(np.float64), True) for a in (mean, var, w, b)]
    e = function(*whole, False)
    e.backward(Tensor(np.where(mask, dy, 0).astype(np.float64)))
    close([y.numpy()], [np.where(mask, e.numpy(), 0)], 2e-6)
    for got, want in zip(tensors, whole, strict=True):
        expected = want.grad.numpy()
        close([got.grad.numpy()], [np.where(mask, expected, 0) if got is X else expected], 5e-6)


def test_evaluation_of_float16_with_a_mean_beyond_its_range():
    x = Tensor(np.array([[np.nan], [6e4]], np.float16), True)
    w = mn.ones(1, requires_grad=True)
    y = F.batch_norm(x, mn.tensor([1e6]), mn.tensor([1e10]), w, mask=Tensor(np.array([[False], [True]])))
    y.sum().backward()
    np.testing.assert_allclose(y.numpy(), [[0], [-9.4]], rtol=1e-3)
    np.testing.assert_allclose(w.grad.numpy(), [-9.4], rtol=1e-3)


# Beside PyTorch


def test_a_padded_batch_beside_pytorch_without_padding(rng):
    torch = pytest.importorskip("torch")
    lengths = [3, 7, 1, 5]
    x, dy = rng.standard_normal((2, 4, 6, 7)).astype(np.float32)
    mask = np.arange(7) < np.array(lengths).reshape(-1, 1, 1)
    w, b = rng.standard_normal((2, 6)).astype(np.float32)
    X, W, B = (Tensor(a.copy(), True) for a in (np.where(mask, x, np.nan).astype(np.float32), w, b))
    y = F.batch_norm(X, None, None, W, B, True, mask=Tensor(mask))
    y.backward(Tensor(dy))
    pick = np.broadcast_to(mask, x.shape).transpose(0, 2, 1)[:, :, 0]
    T, TW, TB = (torch.tensor(a).requires_grad_() for a in (x.transpose(0, 2, 1)[pick], w, b))
    t = torch.nn.functional.batch_norm(T, None, None, TW, TB, True)
    t.backward(torch.tensor(dy.transpose(0, 2, 1)[pick]))
    np.testing.assert_allclose(y.numpy().transpose(0, 2, 1)[pick], t.detach().numpy(), atol=2e-6)
    np.testing.assert_allclose(X.grad.numpy().transpose(0, 2, 1)[pick], T.grad.numpy(), atol=2e-6)
    np.testing.assert_allclose(W.grad.numpy(), TW.grad.numpy(), atol=1e-5)
    np.testing.assert_allclose(B.grad.numpy(), TB.grad.numpy(), atol=1e-5)


# Equal values


@pytest.mark.parametrize("mask", [None, np.array([[True, True, True, False], [True, False, True, True]])])
@pytest.mark.parametrize("number", [0.0, 0.1, 12345.678, 1e30])
def test_the_gradient_of_equal_values_is_0(number, mask, rng):
    x = Tensor(np.full((2, 4), number, np.float32), True)
    y = F.mean_variance_norm(x, (1,), mask=None if mask is None else Tensor(mask))
    y.backward(Tensor(rng.standard_normal((2, 4)).astype(np.float32)))
    np.testing.assert_array_equal(y.numpy(), 0)
    np.testing.assert_array_equal(x.grad.numpy(), 0)


# Mistakes


CALLS = {
    "batch_norm": lambda x, m: F.batch_norm(x, mn.zeros(3), mn.ones(3), mask=m),
    "instance_norm": lambda x, m: F.instance_norm(x, mask=m),
    "group_norm": lambda x, m: F.group_norm(x, 3, mask=m),
    "layer_norm": lambda x, m: F.layer_norm(x, 4, mask=m),
    "rms_norm": lambda x, m: F.rms_norm(x, 4, mask=m),
    "mean_variance_norm": lambda x, m: F.mean_variance_norm(x, (2,), mask=m),
}


@pytest.mark.parametrize("name", CALLS)
def test_mistakes(name):
    call, x = CALLS[name], mn.ones((2, 3, 4))
    with pytest.raises(TypeError, match=rf"{name}: mask is float32; expected bool"):
        call(x, mn.ones((2, 3, 4)))
    with pytest.raises(TypeError, match=rf"{name}: mask is ndarray; expected a bool Tensor"):
        call(x, np.ones((2, 3, 4), bool))
    for shape in ((2, 3), (2, 3, 5), (1, 2, 3, 4), (2, 1, 3)):
        with pytest.raises(
            ValueError, match=rf"{name}: mask has shape .*; expected a shape that broadcasts to x.shape"
        ):
            call(x, mn.ones(shape, dtype=mn.bool))
    assert call(x, mn.ones((2, 1, 4), dtype=mn.bool)).shape == (2, 3, 4)
    assert call(mn.ones((0, 3, 4)), mn.ones((0, 1, 4), dtype=mn.bool)).shape == (0, 3, 4)


def test_the_mask_is_watched():
    x, mask = mn.randn(4, 3, requires_grad=True), mn.ones((4, 3), dtype=mn.bool)
    y = F.layer_norm(x, 3, mask=mask)
    mask.fill_(False)
    with pytest.raises(RuntimeError, match="changed in place"):
        y.sum().backward()


def test_other_ranks_are_refused():
    class Two:
        size = 2

    x, mask = mn.randn(4, 3, 2), mn.ones((4, 1, 2), dtype=mn.bool)
    for call in (
        lambda: F.batch_norm(x, None, None, training=True, process_group=Two(), mask=mask),
        lambda: F.instance_norm(x, mn.zeros(3), mn.ones(3), process_group=Two(), mask=mask),
    ):
        with pytest.raises(NotImplementedError, match=r"_norm: a mask with a process_group of 2 ranks"):
            call()
    checks.check_mask("batch_norm", x, None)


# Backends handed in


def test_a_backend_of_ones_own_need_not_know_masks(rng):
    case, mask, calls = CASES["batch"], MASKS["half"](rng, SHAPE), []

    def apply(nest, x, stats, s, b):
        calls.append(np.isfinite(x).all())
        return reference.norm.apply(nest, x, stats, s, b)

    x, dy, w, b = inputs(case, rng, mask)
    found = results(case, x, dy, w, b, mask, backend=PartialBackend(apply=apply))
    close(found, oracle(case, x, w, b, mask, dy), 5e-6)
    assert calls == [True]
