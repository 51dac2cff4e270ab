"""Normalize and NormalizeWith: finite differences in float64, layouts, and what is kept and watched."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
from minorm.normalization.call import NormCall
from minorm.normalization.equation import Equation
from minorm.normalization.normalize import Normalize, NormalizeWith
from minorm.tensor.tensor import Tensor
from minorm.testing import gradcheck

CASES = {  # shape, axes, groups, param, shape of the parameters
    "batch": ((4, 3, 2, 3), (0, 2, 3), 1, (1,), (3,)),
    "batch N x C": ((6, 3), (0,), 1, (1,), (3,)),
    "instance": ((2, 3, 4), (2,), 1, (1,), (3,)),
    "group": ((2, 6, 2, 2), (2, 3), 3, (1, 2), (6,)),
    "one scale a group": ((2, 6, 2, 2), (2, 3), 3, (1,), (3,)),
    "layer": ((3, 2, 4), (1, 2), 1, (1, 2), (2, 4)),
    "over channels": ((2, 4, 5), (1,), 1, (1,), (1, 4, 1)),
    "spatial=0": ((4, 2, 3), (0,), 1, (1, 2), (2, 3)),
    "does not fit": ((2, 3, 2, 2, 2), (0, 2, 4), 1, (1, 2), (3, 2)),
    "both ways": ((4, 3), (0,), 1, (0, 1), (4, 3)),
}


@pytest.mark.parametrize("equation", [Equation(1e-3), Equation(1e-3, False), Equation(1e-3, True, True)], ids=str)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_gradients_of_normalize(case, equation, rng):
    shape, axes, groups, param, param_shape = case
    x = rng.standard_normal(shape) + 1

    def f(x, s, b):
        return Normalize.apply(x, s, b, call=NormCall(x.array, equation, axes, param, groups))

    assert gradcheck(f, x, rng.standard_normal(param_shape), rng.standard_normal(param_shape)) < 1e-6


@pytest.mark.parametrize(
    "case", [c for c in CASES.values() if c[2] == 1], ids=[n for n, c in CASES.items() if c[2] == 1]
)
def test_gradients_of_normalize_with(case, rng):
    shape, axes, _, param, param_shape = case
    kept = [n for i, n in enumerate(shape) if i not in axes]

    def f(x, mean, var, s, b):
        return NormalizeWith.apply(x, mean, var, s, b, call=NormCall(x.array, Equation(1e-3), axes, param))

    arrays = [rng.standard_normal(n) for n in (shape, kept, kept, param_shape, param_shape)]
    arrays[2] = np.abs(arrays[2]) + 0.5
    assert gradcheck(f, *arrays) < 1e-6


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (3, 1, 2, 0), (1, 0, 2, 3)])
@pytest.mark.parametrize("case", [c for c in CASES.values() if len(c[0]) == 4], ids=str)
def test_any_memory_order_gives_the_same_and_keeps_its_order(case, order, rng):
    shape, axes, groups, param, param_shape = case
    x, dy = rng.standard_normal((2, *shape))
    s, b = rng.standard_normal((2, *param_shape))
    results = []
    for array in (x, np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))):
        inputs = [Tensor(a, requires_grad=True) for a in (array, s, b)]
        y = Normalize.apply(*inputs, call=NormCall(array, Equation(), axes, param, groups))
        assert y.array.strides == array.strides
        y.backward(dy)
        results.append([y.array, *[t.grad.array for t in inputs]])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.mark.parametrize(
    "needs", [(True, False, False), (False, True, False), (False, False, True), (False, True, True)]
)
def test_only_what_is_needed_is_computed(needs, rng):
    inputs = [Tensor(rng.standard_normal(n), r) for n, r in zip(((4, 3), 3, 3), needs, strict=True)]
    Normalize.apply(*inputs, call=NormCall(inputs[0].array, Equation(), (0,), (1,))).sum().backward()
    assert tuple(t.grad is not None for t in inputs) == needs


def test_observe_sees_population_statistics_in_logical_order(rng):
    x = rng.standard_normal((3, 2, 4))
    x = np.ascontiguousarray(x.transpose(1, 0, 2)).transpose(1, 0, 2)
    seen = []
    call = NormCall(x, Equation(), (2,))
    Normalize.apply(Tensor(x), None, None, call=call, observe=lambda *statistics: seen.append(statistics))
    ((mean, var, count),) = seen
    np.testing.assert_allclose(mean, x.mean(2))
    np.testing.assert_allclose(var, x.var(2))
    assert count == 4


def test_changing_an_input_before_backward_is_an_error(rng):
    x = mn.tensor(rng.standard_normal((4, 3)), requires_grad=True)
    s = mn.tensor(rng.standard_normal(3), requires_grad=True)
    y = Normalize.apply(x, s, None, call=NormCall(x.array, Equation(), (0,), (1,)))
    with mn.no_grad():
        s.mul_(2)
    with pytest.raises(RuntimeError, match=r"Normalize.*changed in place"):
        y.sum().backward()


def test_compute_dtype(rng):
    x = Tensor((rng.standard_normal((4, 1000)) + 100).astype(np.float32), True)
    outputs = []
    for compute in (None, np.dtype(np.float64)):
        y = Normalize.apply(x, None, None, call=NormCall(x.array, Equation(), (1,), compute_dtype=compute))
        assert y.dtype == np.float32
        x.grad = None
        y.backward(np.arange(4000, dtype=np.float32).reshape(4, 1000))
        outputs.append((y.array, x.grad.array))
    wide = x.array.astype(np.float64)
    exact = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    np.testing.assert_array_equal(outputs[1][0], exact.astype(np.float32))
    assert (outputs[0][0] != outputs[1][0]).any()
    assert (outputs[0][1] != outputs[1][1]).any()
    np.testing.assert_allclose(outputs[0][1], outputs[1][1], rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("shape", [(0, 3), (4, 0, 5)])
def test_empty(shape):
    x, s = Tensor(np.ones(shape), True), Tensor(np.ones(shape[1]), True)
    y = Normalize.apply(x, s, s, call=NormCall(x.array, Equation(), (0,), (1,)), observe=pytest.fail)
    assert y.shape == shape
    y.backward(np.ones(shape))
    np.testing.assert_array_equal(s.grad.array, 0)
    mean = Tensor(np.ones([n for i, n in enumerate(shape) if i != 0]), True)
    y = NormalizeWith.apply(x, mean, mean, None, None, call=NormCall(x.array, Equation(), (0,)))
    y.backward(np.ones(shape))
    np.testing.assert_array_equal(mean.grad.array, 0)


def test_a_backend_of_ones_own():
    class Doubling:
        def __getattr__(self, name):
            from minorm.kernels.reference import norm

            return lambda *args: getattr(norm, name)(*args) if name != "forward" else self.forward(*args)

        def forward(self, *args):
            from minorm.kernels.reference import norm

            y, stats = norm.forward(*args)
            return 2 * y, stats

    x = Tensor(np.array([[1.0, 3.0]]), True)
    y = Normalize.apply(x, None, None, call=NormCall(x.array, Equation(0.0), (1,), backend=Doubling()))
    np.testing.assert_allclose(y.array, [[-2, 2]])
    y.sum().backward()


@pytest.mark.parametrize("shape", [(2, 3, 2, 2, 3), (1, 1, 1, 1, 1)])
def test_one_scale_for_all_of_data_that_must_be_copied(shape, rng):
    x = rng.standard_normal((2, 3, 2, 2, 3)).transpose(4, 1, 3, 0, 2).copy().transpose(3, 1, 4, 2, 0)
    scale, bias = rng.standard_normal((2, *shape))
    assert mn.explain(mn.functional.normalization, x.shape, axes=(0, 2, 4)).copied is not None
    assert gradcheck(lambda *t: mn.functional.normalization(*t, axes=(0, 2, 4)), x, scale, bias) < 1e-6
    y = mn.functional.normalization(Tensor(x), Tensor(scale), Tensor(bias), axes=(0, 2, 4))
    axes = {"axis": (0, 2, 4), "keepdims": True}
    np.testing.assert_allclose(y.array, (x - x.mean(**axes)) / np.sqrt(x.var(**axes) + 1e-5) * scale + bias, atol=1e-12)


def test_one_repeated_bias_is_widened_for_data_that_must_be_copied() -> None:
    """NumPy's reshape gives a view of step 0 here, which a kernel would read as if it were a whole array."""
    x = np.random.default_rng(0).standard_normal((5, 8, 3, 6)).astype(np.float32).transpose(2, 1, 0, 3)
    bias = np.broadcast_to(np.float32(3), (4,))
    y = mn.functional.group_norm(mn.Tensor(x), 4, None, mn.Tensor(bias)).numpy()
    groups = x.reshape(3, 4, 2, 5, 6).astype(np.float64)
    mean, var = groups.mean((2, 3, 4), keepdims=True), groups.var((2, 3, 4), keepdims=True)
    expected = ((groups - mean) / np.sqrt(var + 1e-5) + 3).reshape(x.shape)
    np.testing.assert_allclose(y, expected, atol=1e-5)


# Masks


@pytest.mark.parametrize("equation", [Equation(1e-3), Equation(1e-3, False), Equation(1e-3, True, True)], ids=str)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_gradients_under_a_mask(case, equation, rng):
    shape, axes, groups, param, param_shape = case
    mask = Tensor(rng.random(shape) < 0.7)

    def f(x, s, b):
        return Normalize.apply(x, s, b, mask, call=NormCall(x.array, equation, axes, param, groups, masked=True))

    assert gradcheck(f, rng.standard_normal(shape) + 1, *rng.standard_normal((2, *param_shape))) < 1e-6


@pytest.mark.parametrize(
    "case", [c for c in CASES.values() if c[2] == 1], ids=[n for n, c in CASES.items() if c[2] == 1]
)
def test_gradients_of_normalize_with_under_a_mask(case, rng):
    shape, axes, _, param, param_shape = case
    kept = [n for i, n in enumerate(shape) if i not in axes]
    mask = Tensor(rng.random(shape) < 0.5)

    def f(x, mean, var, s, b):
        call = NormCall(x.array, Equation(1e-3), axes, param, masked=True)
        return NormalizeWith.apply(x, mean, var, s, b, mask, call=call)

    arrays = [rng.standard_normal(n) for n in (shape, kept, kept, param_shape, param_shape)]
    arrays[2] = np.abs(arrays[2]) + 0.5
    assert gradcheck(f, *arrays) < 1e-6


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (3, 1, 2, 0), (1, 0, 2, 3)])
@pytest.mark.parametrize("case", [c for c in CASES.values() if len(c[0]) == 4], ids=str)
def test_a_mask_in_any_memory_order(case, order, rng):
    shape, axes, groups, param, param_shape = case
    x, dy = rng.standard_normal((2, *shape))
    s, b = rng.standard_normal((2, *param_shape))
    mask = rng.random(shape) < 0.6
    results = []
    for turn in (lambda a: a, lambda a: np.ascontiguousarray(a.transpose(order)).transpose(np.argsort(order))):
        for array, m in ((turn(x), mask), (x, turn(mask)), (turn(x), turn(mask))):
            inputs = [Tensor(a, requires_grad=True) for a in (array, s, b)]
            call = NormCall(array, Equation(), axes, param, groups, masked=True)
            y = Normalize.apply(*inputs, Tensor(m), call=call)
            y.backward(dy)
            results.append([y.array, *[t.grad.array for t in inputs]])
    for result in results[1:]:
        for a, b in zip(results[0], result, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-12)


def test_observe_sees_the_counts(rng):
    x, mask = rng.standard_normal((3, 2, 4)), rng.random((3, 2, 4)) < 0.4
    mask[1, 0] = False
    x = np.ascontiguousarray(x.transpose(1, 0, 2)).transpose(1, 0, 2)
    seen = []
    call = NormCall(x, Equation(), (2,), masked=True)
    Normalize.apply(Tensor(x), None, None, Tensor(mask), call=call, observe=lambda *found: seen.append(found))
    ((mean, var, count),) = seen
    np.testing.assert_array_equal(count, mask.sum(2))
    for i, j in np.ndindex(3, 2):
        values = x[i, j][mask[i, j]]
        assert np.isclose(mean[i, j], values.mean() if len(values) else 0)
        assert np.isclose(var[i, j], values.var() if len(values) else 0)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", ["layer_norm", "layer_norm with a scale", "group_norm", "add_layer_norm relu"])
def test_one_element_is_its_own_mean(kind: str, name: str) -> None:
    """y is the bias, whatever x is: the gradient of x is 0, to the last bit."""
    rng = np.random.default_rng(0)
    dtype = getattr(mn, kind)
    x = mn.tensor(rng.standard_normal((64, 2)) * 100, dtype=dtype, requires_grad=True)
    w, b = (mn.tensor(rng.standard_normal(2), dtype=dtype, requires_grad=True) for _ in range(2))
    dy = mn.tensor(rng.standard_normal((64, 2)) * 30, dtype=dtype)
    if name == "group_norm":
        y, expected = mn.functional.group_norm(x, 2, w, b), b.expand(64, 2)
    else:
        scale, bias = (w[:1], b[:1]) if name != "layer_norm" else (None, None)
        options = {"activation": "relu"} if name.endswith("relu") else {}
        y = mn.functional.layer_norm(x.reshape(128, 1), 1, scale, bias, **options).reshape(64, 2)
        expected = mn.zeros(64, 2, dtype=dtype) if bias is None else bias.expand(64, 2)
        expected = expected.relu() if options else expected
    np.testing.assert_array_equal(y.detach().numpy(), expected.detach().numpy())
    (y * dy).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), 0)
