"""Hooks on gradients, and autograd.grad, which takes gradients with them."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.graph import hooks


def test_a_hook_sees_the_sum_and_may_change_it() -> None:
    x = mn.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    seen = []
    handle = y.register_hook(lambda g: seen.append(g.tolist()))
    y.register_hook(lambda g: g * 10)
    x.register_hook(lambda g: g + 1)
    (y + y * y).sum().backward()
    assert seen == [[7.0, 13.0]]
    assert x.grad is not None
    assert x.grad.tolist() == [211.0, 391.0]
    handle.remove()
    handle.remove()


@pytest.mark.parametrize("create_graph", [False, True])
def test_what_a_hook_keeps_or_returns_is_not_the_gradient_that_the_user_changes(create_graph: bool) -> None:
    kept: list[Any] = []
    own = mn.ones(3) * 5
    x, y = (mn.ones(3, requires_grad=True) for _ in range(2))
    between = x + 1
    layer = mn.nn.Identity()
    layer.register_full_backward_hook(lambda _, into, out: kept.extend((*into, *out)))
    for tensor in (x, between):
        tensor.register_hook(kept.append)
    y.register_hook(lambda _: own)
    between.retain_grad()
    (layer(between) * 2 + y).sum().backward(create_graph=create_graph)
    for tensor in (x, y, between):
        assert tensor.grad is not None
        tensor.grad.data.mul_(10)
    assert [t.grad.tolist() for t in (x, y, between) if t.grad is not None] == [[20] * 3, [50] * 3, [20] * 3]
    assert [g.tolist() for g in kept] == [[2] * 3] * 4
    assert own.tolist() == [5] * 3


@pytest.mark.parametrize("create_graph", [False, True])
def test_what_a_hook_keeps_is_not_what_grad_returns(create_graph: bool) -> None:
    kept: list[Any] = []
    x = mn.ones(3, requires_grad=True)
    layer = mn.nn.Identity()
    layer.register_full_backward_hook(lambda _, into, out: kept.extend((*into, *out)))
    (g,) = mn.autograd.grad((layer(x) ** 2).sum(), x, create_graph=create_graph)
    x.register_hook(kept.append)
    (h,) = mn.autograd.grad((x**2).sum(), x, create_graph=create_graph)
    for found in (g, h):
        found.data.mul_(10)
    assert [g.tolist() for g in kept] == [[2] * 3] * 3


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (lambda g: g[:2], ValueError, r"the hook returned float32 of shape \(2,\); expected float32 of shape \(3,\)"),
        (lambda g: g.double(), ValueError, r"the hook returned float64 of shape \(3,\)"),
        (lambda g: g.numpy(), TypeError, "the hook returned ndarray; expected a Tensor, or None"),
    ],
)
def test_what_a_hook_returns_is_like_the_gradient(answer: Any, error: type[Exception], said: str) -> None:
    x = mn.ones(3, requires_grad=True)
    x.register_hook(answer)
    with pytest.raises(error, match=said):
        x.sum().backward()
    assert x.grad is None


def test_hooks_go_with_what_they_were_for() -> None:
    gc.collect()  # what other tests have left behind
    x = mn.ones(2, requires_grad=True)
    before = len(hooks.registered)
    y = x * 2
    y.register_hook(lambda g: g * y)  # a hook may hold what it is for
    x.register_hook(lambda g: g * x)
    assert len(hooks.registered) == before + 2
    there = weakref.ref(x), weakref.ref(y)
    x = y = None
    gc.collect()
    assert [reference() for reference in there] == [None, None]
    assert len(hooks.registered) == before
    with pytest.raises(RuntimeError, match="register_hook: the tensor does not require grad"):
        mn.ones(2).register_hook(print)


def test_a_result_whose_graph_was_freed_takes_a_hook_again() -> None:
    x = mn.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.sum().backward()
    handle = y.register_hook(lambda g: g * 100)
    with pytest.raises(RuntimeError, match="freed"):
        y.sum().backward()
    handle.remove()
    assert x.grad is not None
    assert x.grad.tolist() == [20.0, 20.0]


def test_threads_lose_no_hook() -> None:
    x = mn.ones(2, requires_grad=True)
    calls: list[Any] = []
    y = x * 2
    with ThreadPoolExecutor(8) as threads:
        for _ in range(400):
            threads.submit(y.register_hook, lambda g: calls.append(g.tolist()))
    y.sum().backward()
    assert len(calls) == 400


def test_grad_of_leaves_and_of_results_between() -> None:
    x = mn.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    z = (y * 3).sum()
    dx, dy = mn.autograd.grad(z, (x, y))
    assert dx.tolist() == [6.0, 12.0]
    assert dy.tolist() == [3.0, 3.0]
    assert x.grad is None
    assert y.grad is None


def test_grad_of_several_outputs_adds_up() -> None:
    x = mn.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    (dx,) = mn.autograd.grad([y, (y * 2).sum()], x, [mn.tensor([1.0, 0.0]), None])
    np.testing.assert_allclose(dx.numpy(), [2 + 4, 8])


def test_grad_keeps_the_graph_where_asked() -> None:
    x = mn.tensor(3.0, requires_grad=True)
    y = x * x
    assert mn.autograd.grad(y, x, retain_graph=True)[0].item() == 6
    assert mn.autograd.grad(y, x)[0].item() == 6
    with pytest.raises(RuntimeError, match="freed"):
        mn.autograd.grad(y, x)


def test_grad_names_what_is_wrong() -> None:
    x, unused = mn.ones(2, requires_grad=True), mn.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="do not depend on input 1"):
        mn.autograd.grad((x * 2).sum(), (x, unused))
    assert mn.autograd.grad((x * 2).sum(), (x, unused), allow_unused=True)[1] is None
    with pytest.raises(RuntimeError, match="output 0 has shape"):
        mn.autograd.grad(x * 2, x)
    with pytest.raises(RuntimeError, match="input 0 does not require grad"):
        mn.autograd.grad((x * 2).sum(), mn.ones(2))
    with pytest.raises(ValueError, match="grad_outputs\\[0\\] is float64"):
        mn.autograd.grad(x * 2, x, mn.ones(2, dtype=mn.float64))
