"""Gradients of gradients of Functions that PyTorch's samples do not reach, against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.functional import recurrent
from minorm.functional.einsum import einsum
from minorm.functional.quantization import dequantize, quantize
from minorm.functional.sampling import grid_sample
from minorm.kernels.reference import elementwise, gates
from minorm.kernels.reference.gates import Gate
from minorm.ops import scatter
from minorm.ops.recurrent import activated
from minorm.ops.shape import Unbind
from minorm.testing import gradcheck, gradgradcheck

Function = Callable[..., Any]
Case = tuple[Function, tuple[tuple[int, ...], ...]]


def assign_through(view: Callable[[Any], Any]) -> Function:
    """x * x with a view of it overwritten."""

    def run(x: Any, b: Any) -> Any:
        y = x * x
        part = view(y)
        part[...] = b * b * b
        return y * y

    return run


LENGTHS = mn.tensor([3, 1])
CASES: dict[str, Case] = {
    "rnn": (lambda x, w, r, b: recurrent.rnn(x, None, w, r, b)[0], ((3, 2, 2), (1, 2, 2), (1, 2, 2), (1, 4))),
    "rnn of some lengths, in reverse": (
        lambda x, w, r: recurrent.rnn(x, None, w, r, lengths=LENGTHS, direction="reverse")[0],
        ((3, 2, 2), (1, 2, 2), (1, 2, 2)),
    ),
    "lstm with peepholes": (
        lambda x, w, r, p: recurrent.lstm(x, None, w, r, peephole=p, lengths=LENGTHS)[0],
        ((3, 2, 2), (1, 8, 2), (1, 8, 2), (1, 6)),
    ),
    "lstm with a clip, the last state": (
        lambda x, w, r: recurrent.lstm(x, None, w, r, clip=0.4)[1], ((2, 2, 2), (1, 8, 2), (1, 8, 2)),
    ),
    "gru": (
        lambda x, w, r, b: recurrent.gru(x, None, w, r, b)[0], ((2, 2, 2), (1, 6, 2), (1, 6, 2), (1, 12)),
    ),
    "gru that resets before the product": (
        lambda x, w, r, b: recurrent.gru(x, None, w, r, b, reset_after=False)[0],
        ((2, 2, 2), (1, 6, 2), (1, 6, 2), (1, 12)),
    ),
    "assigned to rows": (assign_through(lambda y: y[1:]), ((3, 2), (2, 2))),
    "assigned to a row of fewer axes": (assign_through(lambda y: y[1]), ((3, 2), (2,))),
    "assigned to columns of the transposed": (assign_through(lambda y: y.T[1:]), ((2, 3), (2, 2))),
    "assigned to a reshaped view": (assign_through(lambda y: y.view(6)[::2]), ((2, 3), (3,))),
    "einsum with a diagonal": (lambda a, b: einsum("iij,kj->ik", a, b), ((2, 2, 3), (2, 3))),
    "unbound": (lambda x: sum(y * y for y in Unbind.apply(x, axis=1)[1:]), ((2, 3),)),
    "rows scattered": (
        lambda a, b: scatter.ScatterND.apply(a * a, mn.tensor([[0], [2], [0]]), b * b, reduction="add"),
        ((3, 2), (3, 2)),
    ),
    "the largest scattered": (
        lambda a, b: scatter.ScatterElements.apply(a * a, mn.tensor([[0, 2], [1, 1]]), b * b, reduction="max", axis=0),
        ((3, 2), (2, 2)),
    ),
    "volumes sampled": (lambda x, g: grid_sample(x, g * 0.4), ((1, 1, 2, 3, 2), (1, 2, 1, 1, 3))),
    "images sampled by cubics": (lambda x, g: grid_sample(x, g * 0.3, "bicubic"), ((1, 2, 4, 3), (1, 2, 1, 2))),
    "variance of rows": (lambda x: x.var(1) * x.std(0).sum(), ((3, 3),)),
    "a product with a zero": (lambda x: (x * mn.tensor([[1.0, 0.0, 1.0]], dtype=mn.float64)).prod(1), ((2, 3),)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_second_gradients(name: str, rng: np.random.Generator) -> None:
    """Along three directions: a step along one takes two calls, where one for each element would take hundreds."""
    function, shapes = CASES[name]
    arrays = [rng.standard_normal(shape) for shape in shapes]
    y = function(*map(mn.tensor, arrays))
    v, w = mn.tensor(rng.standard_normal(y.shape)), [mn.tensor(rng.standard_normal(shape)) for shape in shapes]

    def slope(step: float, direction: list[Any], create_graph: bool) -> tuple[list[Any], Any]:
        moved = zip(arrays, direction, strict=True)
        inputs = [mn.tensor(a + step * u, requires_grad=True) for a, u in moved]
        first = mn.autograd.grad((function(*inputs) * v).sum(), inputs, create_graph=create_graph)
        return inputs, sum((g * weights).sum() for g, weights in zip(first, w, strict=True))

    inputs, value = slope(0.0, arrays, True)
    second = mn.autograd.grad(value, inputs, allow_unused=True)
    for _ in range(3):
        direction = [rng.standard_normal(shape) for shape in shapes]
        found = sum(float((g.numpy() * u).sum()) for g, u in zip(second, direction, strict=True) if g is not None)
        above, below = (slope(step, direction, False)[1].item() for step in (1e-5, -1e-5))
        expected = (above - below) / 2e-5
        assert abs(found - expected) < 1e-6 * (1 + abs(expected))


@pytest.mark.parametrize("name", gates.DEFAULTS)
def test_activations_of_recurrent_layers(name: str, rng: np.random.Generator) -> None:
    gate, x = Gate(name, *gates.DEFAULTS[name]), 2 * rng.standard_normal(12)
    np.testing.assert_allclose(
        activated(gate, mn.tensor(x)).numpy(), gates.value(gate, x, elementwise), rtol=1e-12, atol=1e-12
    )
    gradcheck(lambda x: activated(gate, x), x)


def test_third_gradients_of_a_sampled_image(rng: np.random.Generator) -> None:
    def slope(x: Any, grid: Any) -> Any:
        return mn.autograd.grad((grid_sample(x, grid * 0.3, "bicubic") ** 2).sum(), grid, create_graph=True)[0]

    assert gradgradcheck(slope, rng.standard_normal((1, 1, 2, 2)), rng.standard_normal((1, 1, 1, 2))) < 1e-6


def test_what_rounds_and_what_multiplies_at_one_place_say_that_they_have_none() -> None:
    x = mn.tensor([0.3, 0.7], requires_grad=True)
    step = mn.tensor(0.1)
    with pytest.raises(NotImplementedError, match=r"create_graph=True: .*uantize has no gradient of its gradient"):
        mn.autograd.grad(dequantize(quantize(x, step), step).sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="create_graph=True: scatter with a product has no gradient"):
        y = scatter.ScatterElements.apply(x, mn.tensor([0]), mn.ones(1), reduction="mul", axis=0)
        mn.autograd.grad(y.sum(), x, create_graph=True)
