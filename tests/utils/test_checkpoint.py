"""Checkpoints give the bits of the model without them; what they keep is counted, and what they change, too."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn
from minorm.testing import gradgradcheck
from minorm.utils.checkpoint import checkpoint, checkpoint_sequential

Way = Callable[[nn.Sequential, mn.Tensor], mn.Tensor]


def block() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3))


def each(model: nn.Sequential, x: mn.Tensor) -> mn.Tensor:
    for part in model:
        x = checkpoint(part, x, use_reentrant=False)
    return x


def nested(model: nn.Sequential, x: mn.Tensor) -> mn.Tensor:
    def inner(x: mn.Tensor) -> mn.Tensor:
        return checkpoint(model[2], checkpoint(model[1], x)) * 2 - checkpoint(model[2], x)

    return checkpoint(lambda x: checkpoint(inner, model[0](x)), x)


WAYS: dict[str, Way] = {
    "each": each,
    "whole": checkpoint,
    "sequential": lambda model, x: checkpoint_sequential(model, 2, x),
    "without an input that needs a gradient": lambda model, x: checkpoint(model, x.detach()),
}


def step(way: Way, seed: int = 5, casts: bool = False) -> list[np.ndarray]:
    """All that a step leaves behind: the result, gradients, buffers, and the place of the random generator."""
    mn.manual_seed(0)
    model = nn.Sequential(*[block() for _ in range(3)])
    x = mn.randn(4, 4, 6, 6, requires_grad=True)
    mn.manual_seed(seed)
    with mn.autocast("cpu") if casts else nullcontext():
        y = way(model, x)
    (y.float() ** 2).sum().backward()
    tensors = [y.detach(), *[p.grad for p in model.parameters()], *model.buffers(), mn.rand(3)]
    return [*[t.numpy() for t in tensors], *([] if x.grad is None else [x.grad.numpy()])]


@pytest.mark.parametrize("casts", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_the_bits_are_those_without(way: str, casts: bool) -> None:
    """Running statistics are updated once, dropout draws the same, and autocast is what it was, outside of it, too."""
    plain = step(lambda model, x: model(x), casts=casts)
    found = step(WAYS[way], casts=casts)
    for expected, array in zip(plain, found, strict=False):
        np.testing.assert_array_equal(array, expected)
    assert len(found) == len(plain) - ("without" in way)


def test_nested_ones() -> None:
    def plain(model: nn.Sequential, x: mn.Tensor) -> mn.Tensor:
        x = model[0](x)
        return model[2](model[1](x)) * 2 - model[2](x)

    for expected, array in zip(step(plain), step(nested), strict=True):
        np.testing.assert_array_equal(array, expected)


def kept_bytes(y: mn.Tensor) -> int:
    """Of all arrays that the graph holds, but for the parameters'; memory that several share counts once."""
    found: dict[int, int] = {}
    stack, seen = [y.creator], set()
    while stack:
        node = stack.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        for value in vars(node).values():
            for array in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(array, np.ndarray):
                    base = array if array.base is None else array.base
                    found[id(base)] = array.nbytes
        stack += [edge[0] for edge in node.edges or () if edge is not None and edge[2] is not None]
    return sum(found.values())


def test_memory_falls() -> None:
    model, x = nn.Sequential(*[nn.Linear(32, 32, bias=False), nn.Tanh()] * 8), mn.ones(512, 32, requires_grad=True)
    plain, result = kept_bytes(model(x)), x.array.nbytes
    whole = checkpoint(model, x)
    assert plain > 8 * result
    assert kept_bytes(whole) == 0
    whole.sum().backward(retain_graph=True)
    assert kept_bytes(whole) == plain  # restored, as the graph was to be kept
    parts = checkpoint_sequential(model, 4, x)
    assert kept_bytes(parts) < 0.4 * plain
    parts.sum().backward()
    assert kept_bytes(parts) == 0


def test_several_results_by_several_arguments(rng: np.random.Generator) -> None:
    a, b = (mn.Tensor(rng.standard_normal(3), requires_grad=True) for _ in range(2))

    def function(x: mn.Tensor, pair: list[mn.Tensor], *, scale: float, other: mn.Tensor) -> dict[str, Any]:
        return {"sum": x + pair[0] * scale, "rest": (other.exp(), pair[1], "text"), "product": x * other}

    gradients = []
    for call in (function, lambda *args, **kwargs: checkpoint(function, *args, **kwargs)):
        found = call(a, [b, mn.ones(3)], scale=3.0, other=b)
        assert found["rest"][2] == "text"
        assert not found["rest"][1].requires_grad
        gradients.append([g.numpy() for g in mn.autograd.grad((found["sum"] * found["product"]).sum(), [a, b])])
    np.testing.assert_array_equal(*gradients)


def test_only_some_gradients_are_asked_for(rng: np.random.Generator) -> None:
    x, w = (mn.Tensor(rng.standard_normal(3), requires_grad=True) for _ in range(2))
    y = checkpoint(lambda x: (x * w).tanh() * w, x).sum()
    expected = mn.autograd.grad(((x * w).tanh() * w).sum(), [x, w])
    for place, tensor in enumerate((x, w)):
        (found,) = mn.autograd.grad(y, tensor, retain_graph=True)
        np.testing.assert_array_equal(found.numpy(), expected[place].numpy())
    y.backward(inputs=[w])
    assert x.grad is None
    np.testing.assert_array_equal(w.grad.numpy(), expected[1].numpy())


def test_second_gradients(rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    start = [rng.standard_normal(4), rng.standard_normal(4)]
    x, w = (mn.Tensor(a.copy(), requires_grad=True) for a in start)
    tx, tw = (torch.tensor(a, requires_grad=True) for a in start)
    found = []
    for first, second, run, grad in (
        (x, w, checkpoint, mn.autograd.grad),
        (tx, tw, lambda f, x: torch.utils.checkpoint.checkpoint(f, x, use_reentrant=False), torch.autograd.grad),
    ):
        y = run(lambda x, w=second: (x * w).exp().tanh() * w, first * 0.1).sum()
        (slope,) = grad(y, first, create_graph=True)
        found.append([slope.detach().numpy(), *[g.detach().numpy() for g in grad(slope.sum(), [first, second])]])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    assert gradgradcheck(lambda x: checkpoint(lambda x: (x**3).sin(), x), x)


def test_hooks_and_retained_gradients() -> None:
    seen, held = [], []

    def function(x: mn.Tensor) -> mn.Tensor:
        middle = x * 3
        if not held:
            middle.retain_grad()
            middle.register_hook(lambda g: seen.append(g.tolist()))
            held.append(middle)
        return middle * middle

    x = mn.tensor([1.0, 2.0], requires_grad=True)
    checkpoint(function, x).sum().backward()
    assert seen == [[6, 12]]
    assert held[0].grad.tolist() == [6, 12]
    assert x.grad.tolist() == [18, 36]


def test_the_random_state() -> None:
    """Without preserve_rng_state the second pass draws anew, as PyTorch's does."""
    mn.manual_seed(1)
    x = mn.ones(1000, requires_grad=True)
    y = checkpoint(lambda x: F.dropout(x * 1, 0.5), x, preserve_rng_state=False)
    y.sum().backward()
    assert not np.array_equal(x.grad.numpy(), y.detach().numpy())
    x.grad = None
    y = checkpoint(lambda x: F.dropout(x * 1, 0.5), x)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.detach().numpy())


def test_contexts_for_both_passes() -> None:
    inside: list[str] = []

    class Note(nullcontext):  # type: ignore[type-arg]
        def __enter__(self) -> Any:
            inside.append(self.enter_result)

    x = mn.ones(1, requires_grad=True)
    y = checkpoint(lambda x: x * 2, x, context_fn=lambda: (Note("first"), Note("second")))
    assert inside == ["first"]
    y.backward()
    assert inside == ["first", "second"]


def test_without_gradients_it_is_a_call(rng: np.random.Generator) -> None:
    calls = []
    x = mn.Tensor(rng.standard_normal(3), requires_grad=True)
    with mn.no_grad():
        assert not checkpoint(lambda x: calls.append(1) or x * 2, x).requires_grad
    assert calls == [1]


def test_an_export_sees_the_model(tmp_path: Any) -> None:
    onnx = pytest.importorskip("onnx")

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x: mn.Tensor) -> mn.Tensor:
            return checkpoint(self.layer, x).relu()

    mn.onnx.export(Model(), (mn.ones(1, 3),), str(tmp_path / "m.onnx"))
    assert [node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node] == ["Gemm", "Relu"]


def test_another_second_pass_is_refused() -> None:
    x, calls = mn.ones(2, 3, requires_grad=True), []

    def other_shape(x: mn.Tensor) -> mn.Tensor:
        calls.append(1)
        return (x[: len(calls)] * 2).exp()

    y = checkpoint(other_shape, x)
    with pytest.raises(
        RuntimeError, match=r"operation 1 of the function was Mul of float32\(1, 3\), but Mul of float32\(2, 3\)"
    ):
        y.sum().backward()
    assert x.grad is None
    calls.clear()
    y = checkpoint(lambda x: x.exp() if calls.append(1) or len(calls) > 1 else x * 2, x)
    with pytest.raises(
        RuntimeError, match=r"operation 0 of the function was Mul, but Exp when the function ran again for backward"
    ):
        y.sum().backward()
    calls.clear()
    y = checkpoint(lambda x: (x * 2).exp() if calls.append(1) or len(calls) > 1 else x * 2, x)
    with pytest.raises(RuntimeError, match="recorded 1 operations, but 2 when it ran again"):
        y.sum().backward()


def test_an_argument_that_changes_is_refused() -> None:
    x = mn.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"an argument of shape \(2,\) was changed in place by the function itself"):
        checkpoint(lambda x: x.mul_(2) * 3, x * 1)
    h = x * 1
    y = checkpoint(lambda x: (x * 2).exp(), h)
    h.add_(1)
    with pytest.raises(
        RuntimeError, match=r"an argument of shape \(2,\) was changed in place after the first call of the function"
    ):
        y.sum().backward()


def test_a_parameter_that_changes_is_refused_as_without() -> None:
    layer, x = nn.Linear(2, 2), mn.ones(1, 2, requires_grad=True)
    y = checkpoint(layer, x)
    with mn.no_grad():
        layer.weight.add_(1)
    with pytest.raises(RuntimeError, match="backward of Linear: an input it needs was changed in place"):
        y.sum().backward()


def test_a_freed_graph_stays_freed() -> None:
    x = mn.ones(2, requires_grad=True)
    y = checkpoint(lambda x: (x * 2).exp(), x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="was freed by an earlier backward"):
        y.backward()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: checkpoint(abs, mn.ones(1), determinism_check="none"), "determinism_check='none'; expected 'default'"),
        (lambda: checkpoint_sequential([abs], 2, mn.ones(1)), "segments=2; expected 1 to 1, the number of functions"),
        (lambda: checkpoint_sequential([abs], 0, mn.ones(1)), "segments=0; expected 1 to 1"),
    ],
)
def test_mistakes(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
