"""Gradients of gradients of Functions that PyTorch's samples do not reach, against finite differences."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.functional import recurrent
from minorm.functional.einsum import einsum
from minorm.functional.sampling import grid_sample
from minorm.graph.graph import Function as Operation
from minorm.kernels.reference import elementwise, gates
from minorm.kernels.reference.gates import Gate
from minorm.ops import scatter
from minorm.ops.quantization import Dequantize, Quantize
from minorm.ops.recurrent import activated
from minorm.ops.shape import Unbind
from minorm.ops.special import Determinant, Fourier
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


def ctc(x: Any, texts: Any, steps: Any, lengths: Any, **options: Any) -> Any:
    return mn.functional.ctc_loss(x, mn.tensor(texts), steps, lengths, reduction="none", **options)


ZEROS = mn.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, -1.0], [2.0, 1.0, 0.0]], dtype=mn.float64)
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
    "rows multiplied at a place": (
        lambda a, b: scatter.ScatterND.apply(a * a, mn.tensor([[0], [-3], [0], [1], [0]]), b, reduction="mul"),
        ((3, 2), (5, 2)),
    ),
    "elements multiplied at a place, some of them 0": (
        lambda a, b: scatter.ScatterElements.apply(
            a * ZEROS, mn.tensor([[0, 2, 0], [0, -1, 0]]), b * ZEROS[1:], reduction="mul", axis=0
        ),
        ((3, 3), (2, 3)),
    ),
    "nothing multiplied": (
        lambda a: a * scatter.ScatterND.apply(
            a, mn.zeros(0, 1, dtype=mn.int64), mn.zeros(0, 2, dtype=mn.float64), reduction="mul"
        ),
        ((3, 2),),
    ),
    "quantized": (lambda x, s: Quantize.apply(x, s * s, None, dtype=np.dtype("int8"), axis=1, block=0), ((2, 3), ())),
    "quantized, a scale for each column, cut off": (
        lambda x, s: Quantize.apply(
            x, s * s / 100, mn.tensor([100] * 3, mn.uint8), dtype=np.dtype("uint8"), axis=1, block=0
        ),
        ((2, 3), (3,)),
    ),
    "read again, a scale for two rows": (
        lambda x, s: Dequantize.apply(x * x, s, None, dtype=None, axis=0, block=2), ((5, 2), (3, 2)),
    ),
    "determinants": (Determinant.apply, ((2, 3, 3),)),
    "determinants of what has no inverse": (lambda x: Determinant.apply(x.unsqueeze(1) * x.unsqueeze(0)), ((3,),)),
    "the determinant of a number": (lambda x: Determinant.apply(x * x), ((1, 1),)),
    "frequencies": (lambda x: Fourier.apply(x * x, axis=0, inverse=False), ((4, 2),)),
    "and back": (lambda x: Fourier.apply(x * x, axis=1, inverse=True), ((2, 3, 2),)),
    "texts over steps": (
        lambda x: ctc(x.log_softmax(-1), [[1, 2, 2], [3, 1, 0], [0, 0, 0]], [6, 4, 2], [3, 2, 0]), ((6, 3, 4),),
    ),
    "texts, of what does not sum to one": (
        lambda x: ctc(-x * x, [[1, 1], [2, 3]], [3, 0], [2, 0], blank=1), ((4, 2, 4),),
    ),
    "texts too long, which count 0": (
        lambda x: ctc(x.log_softmax(-1), [[1, 1], [2, 0]], [2, 5], [2, 1], zero_infinity=True), ((5, 2, 3),),
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


def test_third_gradients_of_texts(rng: np.random.Generator) -> None:
    def slope(x: Any) -> Any:
        loss = ctc(x.log_softmax(-1), [[1, 2]], [3], [2])
        return mn.autograd.grad((loss * loss).sum(), x, create_graph=True)[0]

    assert gradgradcheck(slope, rng.standard_normal((3, 1, 3))) < 1e-6


def test_a_text_that_nothing_leads_to_is_a_constant_beside_another(rng: np.random.Generator) -> None:
    numbers = rng.standard_normal((5, 2, 3))
    x = mn.tensor(numbers, requires_grad=True)
    (plain,) = mn.autograd.grad(ctc(x, [[1, 1], [2, 0]], [2, 5], [2, 1]).sum(), x)
    (first,) = mn.autograd.grad(ctc(x, [[1, 1], [2, 0]], [2, 5], [2, 1]).sum(), x, create_graph=True)
    np.testing.assert_allclose(first.detach().numpy(), plain.numpy(), rtol=1e-12)
    (second,) = mn.autograd.grad(first[:, 1].square().sum(), x)
    assert not second[:, 0].any()
    alone = mn.tensor(numbers[:, 1:], requires_grad=True)
    (g,) = mn.autograd.grad(ctc(alone, [[2]], [5], [1]).sum(), alone, create_graph=True)
    (expected,) = mn.autograd.grad(g.square().sum(), alone)
    np.testing.assert_allclose(second[:, 1:].numpy(), expected.numpy(), rtol=1e-12)


def test_texts_are_walked_twice_and_need_a_step(rng: np.random.Generator) -> None:
    x = mn.tensor(rng.standard_normal((3, 1, 3)), requires_grad=True)
    loss = ctc(x.log_softmax(-1), [[1]], [3], [1]).sum()
    (first,) = mn.autograd.grad(loss, x, retain_graph=True)
    np.testing.assert_array_equal(mn.autograd.grad(loss, x)[0].numpy(), first.numpy())
    with pytest.raises(ValueError, match=r"ctc_loss: log_probs has shape \(0, 1, 3\); expected at least one step"):
        ctc(mn.zeros(0, 1, 3), [[1]], [0], [1])


def modules() -> Iterator[str]:
    """The names of the modules that define a Function."""
    root = Path(mn.__file__).parent
    for file in root.rglob("*.py"):
        if "Function):" in file.read_text(encoding="utf-8"):
            yield ".".join(["minorm", *file.relative_to(root).with_suffix("").parts])


def test_every_operation_has_a_second_gradient() -> None:
    """But for those that docs/differences.md lists."""
    for name in modules():
        importlib.import_module(name)
    found, waiting = set(), [Operation]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.startswith("minorm.") and kind.differentiable and kind.gradient is Operation.gradient:
            found.add(kind.__name__)
    assert found == {"Function", "Graphed", "Cofactors"}
    page = Path(__file__).parents[2] / "docs" / "differences.md"
    section = page.read_text(encoding="utf-8").partition("## Without a second gradient\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \| .+ \|$", section, flags=re.MULTILINE)
    assert rows == ["cuda.make_graphed_callables", "Det of an ONNX file", "an autograd.Function on arrays"]
