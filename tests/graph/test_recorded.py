"""The walk on Tensors: gradients that are in the graph, as often as a function is differentiable."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.autograd import Function, grad

F = mn.functional


def leaf(*numbers: float) -> Any:
    return mn.tensor(list(numbers), dtype=mn.float64, requires_grad=True)


def test_powers_are_differentiated_again_and_again() -> None:
    x = leaf(0.7, -1.3)
    y: Any = x**5
    n = x.numpy()
    for expected in (5 * n**4, 20 * n**3, 60 * n**2, 120 * n, 120 + 0 * n):
        (y,) = grad(y.sum(), x, create_graph=True)
        np.testing.assert_allclose(y.numpy(), expected, rtol=1e-13)


def test_backward_leaves_gradients_that_are_in_the_graph() -> None:
    x = leaf(2.0, 3.0)
    (x**3).sum().backward(create_graph=True)
    first = x.grad
    assert first.requires_grad
    assert first.tolist() == [12.0, 27.0]
    x.grad = None
    (first * first).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * 3 * 6 * x.numpy() ** 3)


def test_backward_adds_to_a_gradient_without_changing_it() -> None:
    x = leaf(2.0)
    x.sum().backward()
    before = x.grad
    (x**2).sum().backward(create_graph=True)
    assert before.tolist() == [1.0]
    assert x.grad.tolist() == [5.0]
    assert grad(x.grad, x)[0].tolist() == [2.0]


def test_weights_are_differentiated_too() -> None:
    x, v = leaf(2.0, 3.0), leaf(5.0, 7.0)
    (g,) = grad(x * x, x, v, create_graph=True)
    dx, dv = grad(g.sum(), (x, v))
    np.testing.assert_array_equal(dx.numpy(), 2 * v.numpy())
    np.testing.assert_array_equal(dv.numpy(), 2 * x.numpy())


def test_results_between_and_several_outputs() -> None:
    x = leaf(2.0, 3.0)
    y = x * x
    z = y * y
    dy, dx = grad([z.sum(), y.sum()], (y, x), create_graph=True)
    np.testing.assert_array_equal(dy.numpy(), 2 * y.numpy() + 1)
    np.testing.assert_array_equal(dx.numpy(), 4 * x.numpy() ** 3 + 2 * x.numpy())
    np.testing.assert_array_equal(grad(dx.sum(), x)[0].numpy(), 12 * x.numpy() ** 2 + 2)


def test_only_what_was_asked_for_is_computed() -> None:
    seen: list[tuple[bool, ...]] = []

    class Product(Function):
        def forward(self, a: Any, b: Any) -> Any:
            self.a, self.b = a, b
            return a * b

        def gradient(self, dy: Any) -> Any:
            seen.append(self.needs)
            return (
                dy * self.input(1, self.b, dy) if self.needs[0] else None,
                dy * self.input(0, self.a, dy) if self.needs[1] else None,
            )

    class Closed(Function):
        def forward(self, x: Any) -> Any:
            return x.copy()

    x, w, z = leaf(2.0), leaf(3.0), leaf(5.0)
    y = Product.apply(x, w * w)
    images = Closed.apply(z) * 2  # has no gradient of its gradient, and is not asked for it
    (dx,) = grad((y * images).sum(), x, create_graph=True)
    assert seen == [(True, False)]
    assert dx.tolist() == [90.0]
    assert grad((Product.apply(x, w * w) * images).sum(), images, create_graph=True)[0].tolist() == [18.0]
    assert y.creator.needs == (True, True)


def test_the_graph_is_kept_unless_it_is_not_to_be() -> None:
    x = leaf(3.0)
    y = (x**3).sum()
    grad(y, x, create_graph=True)
    (g,) = grad(y, x, create_graph=True, retain_graph=False)
    with pytest.raises(RuntimeError, match="graph of Sum was freed"):
        grad(y, x, create_graph=True)
    with pytest.raises(RuntimeError, match="graph of Sum was freed"):
        y.backward()
    assert grad(g, x)[0].tolist() == [18.0]


def test_a_graph_is_gone_when_its_tensors_are() -> None:
    x = leaf(1.0, 2.0)
    y = (x.exp() * x).sum()
    (g,) = grad(y, x, create_graph=True)
    nodes = weakref.ref(g.creator), weakref.ref(y.creator)
    del g, y
    gc.collect()
    assert nodes[0]() is None
    assert nodes[1]() is None


def test_what_has_no_gradient_of_its_gradient_says_so_and_changes_nothing() -> None:
    class Softplus(Function):
        def forward(self, x: Any) -> Any:
            self.x = x
            return np.logaddexp(0, x)

        def backward(self, dy: Any) -> Any:
            return dy / (1 + np.exp(-self.x))

    x = leaf(1.0)
    with pytest.raises(NotImplementedError, match=r"create_graph=True: Softplus has no gradient .* gradient\(self"):
        (Softplus.apply(x) * x).sum().backward(create_graph=True)
    assert x.grad is None
    Softplus.apply(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 1 / (1 + np.exp(-1)))


@pytest.mark.parametrize("changed", ["x", "y"])
def test_a_change_in_place_between_the_two_walks_is_seen(changed: str) -> None:
    x = leaf(1.0, 2.0)
    middle = x * 1.0
    y = middle.exp() if changed == "y" else middle * middle * middle
    (g,) = grad(y.sum(), x, create_graph=True)
    with mn.no_grad():
        (y if changed == "y" else middle).add_(1.0)
    with pytest.raises(RuntimeError, match="changed in place after the forward pass"):
        grad(g.sum(), x)


@pytest.mark.parametrize("function", [F.relu, F.leaky_relu, lambda x: x.clamp(0.0, 1.0), mn.abs, F.hardswish])
def test_a_change_in_place_is_seen_behind_a_map_of_arrays(function: Any) -> None:
    x = leaf(0.3, -0.2)
    middle = x * 1.0
    y = function(middle)
    (g,) = grad((y * y).sum(), x, create_graph=True)
    with mn.no_grad():
        middle.add_(1.0)
        y.add_(1.0)
    with pytest.raises(RuntimeError, match="changed in place after the forward pass"):
        grad(g.sum(), x)


def test_parts_written_in_place_are_differentiated_twice() -> None:
    x, v = leaf(1.0, 2.0, 3.0), leaf(5.0)
    y = x * x
    y[1:2] = v * v * v
    (z,) = (y[:2] * y[1:]).sum().reshape(1)
    dx, dv = grad(z, (x, v), create_graph=True)
    np.testing.assert_allclose(dx.numpy(), [2 * 1 * 125, 0, 125 * 2 * 3])
    second = grad(dx.sum() + dv.sum(), (x, v))
    np.testing.assert_allclose(second[0].numpy(), [250 + 75 * 2, 0, 250 + 75 * 6])
    np.testing.assert_allclose(second[1].numpy(), [75 * (2 + 6) + 30 * 10])


def test_hooks_see_tensors_of_the_graph_and_may_replace_them() -> None:
    x = leaf(2.0)
    seen = []
    y = x * x
    y.register_hook(lambda g: seen.append(g) or g * 10)
    x.register_hook(seen.append)
    (g,) = grad((y * y).sum(), x, create_graph=True)
    assert g.tolist() == [10 * 4 * 8.0]
    assert all(one.requires_grad for one in seen)
    # g = 20 y * 2x; what comes to y on the second way back is taken ten times, too
    assert grad(g, x)[0].tolist() == [10 * (20 * 4.0) * 4 + 20 * 4 * 2]


def test_retained_gradients_are_in_the_graph() -> None:
    x = leaf(2.0)
    y = x * x
    y.retain_grad()
    (y * y).sum().backward(create_graph=True)
    assert y.grad.tolist() == [8.0]
    assert grad(y.grad, x)[0].tolist() == [8.0]


def test_full_backward_hooks_of_modules_see_tensors_of_the_graph() -> None:
    layer = mn.nn.Linear(2, 1, bias=False).double()
    seen: list[Any] = []
    layer.register_full_backward_hook(lambda module, entering, leaving: seen.extend([*entering, *leaving]))
    x = leaf(1.0, 2.0)
    (g,) = grad((layer(x) ** 3).sum(), x, create_graph=True)
    assert len(seen) == 2
    assert all(one.requires_grad for one in seen)
    w = layer.weight.numpy()[0]
    expected = 6 * float(w @ x.numpy()) * w * w.sum()
    np.testing.assert_allclose(grad(g.sum(), x)[0].numpy(), expected)


def test_a_deep_graph_needs_no_deep_stack() -> None:
    x = leaf(1.0)
    y: Any = x
    for _ in range(3000):
        y = y * 1.0005
    (g,) = grad(y * y, x, create_graph=True)
    np.testing.assert_allclose(grad(g, x)[0].numpy(), 2 * 1.0005**6000, rtol=1e-10)


def test_gradients_have_memory_of_their_own() -> None:
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    v = mn.ones(2, dtype=mn.float64)
    dx, dy = grad(x + y, (x, y), v, create_graph=True)
    dx.detach().add_(1)
    assert dy.tolist() == v.tolist() == [1.0, 1.0]
    (x.sum() + y.sum()).backward(create_graph=True)
    x.grad.detach().mul_(5)
    assert y.grad.tolist() == [1.0, 1.0]


def test_the_walk_records_inside_no_grad_and_without_casts() -> None:
    x = leaf(2.0)
    y = (x**3).sum()
    with mn.no_grad():
        (g,) = grad(y, x, create_graph=True)
    assert g.requires_grad
    w = mn.ones(2, 2, requires_grad=True)
    with mn.autocast("cpu", mn.bfloat16):
        z = (w @ w).float().sum()
        (g,) = grad(z, w, create_graph=True)
    assert g.dtype == mn.float32
    assert grad(g.sum(), w)[0].tolist() == [[4.0, 4.0], [4.0, 4.0]]


def test_a_leaf_whose_data_was_replaced_keeps_what_was_computed_with() -> None:
    x = leaf(2.0)
    y = (x**3).sum()
    x.data = mn.tensor([10.0], dtype=mn.float64)
    (g,) = grad(y, x, create_graph=True)
    assert g.tolist() == [12.0]
    assert grad(g, x)[0].tolist() == [12.0]


@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16, mn.float32])
def test_types_stay(dtype: Any) -> None:
    x = mn.tensor([0.5, -1.5, 2.0], dtype=dtype, requires_grad=True)
    for function in (F.gelu, F.silu, lambda x: F.softmax(x, 0), lambda x: F.mse_loss(x, x * 0), mn.logsumexp,
                     lambda x: F.layer_norm(x, 3), lambda x: F.normalize(x, dim=0)):  # fmt: skip
        y = function(x, 0) if function is mn.logsumexp else function(x)
        (g,) = grad(y.sum() * y.sum() + (y * y).sum(), x, create_graph=True)
        assert g.dtype == dtype
        assert grad((g * g).sum(), x)[0].dtype == dtype


def test_what_does_not_depend_on_an_input() -> None:
    x, unused = leaf(1.0), leaf(1.0)
    with pytest.raises(RuntimeError, match="do not depend on input 1"):
        grad((x * x).sum(), (x, unused), create_graph=True)
    found = grad((x * x).sum(), (x, unused), create_graph=True, allow_unused=True)
    assert found[1] is None
    (g,) = grad((x * 3).sum(), x, create_graph=True)
    assert not g.requires_grad  # a constant


def test_a_gradient_of_another_shape_names_the_function() -> None:
    class Wrong(Function):
        def forward(self, x: Any) -> Any:
            return x * 2

        def gradient(self, dy: Any) -> Any:
            return dy.sum()

    x = leaf(1.0, 2.0)
    with pytest.raises(
        RuntimeError, match=r"gradient of Wrong: the gradient of an input is float64\(\); expected float64\(2,\)"
    ):
        grad(Wrong.apply(x).sum(), x, create_graph=True)


def test_threads_lose_no_gradient() -> None:
    import threading

    x = leaf(1.0)

    def add() -> None:
        for _ in range(200):
            (x * 2.0).sum().backward(create_graph=True)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert x.grad.tolist() == [1600.0]


def test_the_hook_of_a_leaf_is_part_of_the_graph_under_no_grad_too() -> None:
    x = leaf(3.0)
    x.register_hook(lambda g: g * x)
    y = (x * 2.0).sum()
    with mn.no_grad():
        (g,) = grad(y, x, create_graph=True)
    (second,) = grad(g.sum(), x)
    assert (g.item(), second.item()) == (6.0, 6.0)  # d(2 x) / dx through the hook once more: 2 * x


@pytest.mark.parametrize("function", [F.relu, F.leaky_relu])
def test_what_was_freed_is_named(function: Any) -> None:
    x = leaf(1.0, -2.0)
    y = (function(x * x - 2) ** 2).sum()
    (g,) = grad(y, x, create_graph=True)
    y.backward()
    with pytest.raises(RuntimeError, match="was freed by an earlier backward"):
        (g * g).sum().backward()


def test_a_changed_first_state_of_a_recurrent_layer_is_seen() -> None:
    layer, h = mn.nn.GRU(2, 3).double(), mn.zeros(1, 1, 3, dtype=mn.float64)
    x = mn.ones(2, 1, 2, dtype=mn.float64, requires_grad=True)
    y = layer(x, h)[0].sum()
    h.add_(3.0)
    with pytest.raises(RuntimeError, match="changed in place"):
        grad(y, x, create_graph=True)


def test_cross_entropy_of_16_bits_behind_a_product() -> None:
    x = mn.tensor([[0.5, -1.5, 2.0]], dtype=mn.float16, requires_grad=True)
    loss = F.cross_entropy(x, mn.tensor([1]))
    (g,) = grad(loss * loss, x, create_graph=True)
    (second,) = grad((g * g).sum(), x)
    assert second.dtype == mn.float16
    assert second.isfinite().all()
