"""backward and grad of several Tensors, with weights, for some leaves alone: run in both libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.autograd import Function, grad
from minorm.autograd import backward as backward_of  # of several Tensors

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:Using backward", "ignore:The .grad attribute of a Tensor that is not")
LIBRARIES = [mn, torch]


class Leaves:
    """Three leaves, results of two of them, and a hook on one of the two that notes its calls."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.x, self.w, self.unused = (library.tensor([1.0, 2.0 + i], requires_grad=True) for i in range(3))
        self.calls: list[str] = []
        self.w.register_hook(lambda _: self.calls.append("w"))
        self.y = self.x * self.w
        self.z = (self.y * self.y * self.x).sum()

    def gradients(self) -> list[Any]:
        return [None if t.grad is None else t.grad.tolist() for t in (self.x, self.w, self.unused, self.y)]


def with_inputs(pick: Any, **options: Any) -> Any:
    return lambda of: of.z.backward(inputs=pick(of), **options)


ASKED = {
    "one": with_inputs(lambda of: of.x),
    "a list": with_inputs(lambda of: [of.w]),
    "both, one twice": with_inputs(lambda of: (of.w, of.x, of.w)),
    "what is not used": with_inputs(lambda of: [of.unused]),
    "a result between": with_inputs(lambda of: [of.y, of.x]),
    "a result between alone": with_inputs(lambda of: [of.y]),
    "itself": with_inputs(lambda of: [of.z, of.w]),
    "in the graph": with_inputs(lambda of: [of.x], create_graph=True),
    "a result between, in the graph": with_inputs(lambda of: [of.y, of.w], create_graph=True),
    "a dict": with_inputs(lambda of: {"x": of.x}),
    "in turns": lambda of: [of.z.backward(inputs=[t], retain_graph=True) for t in (of.x, of.w, of.x)],
    "of several": lambda of: of.library.autograd.backward([of.z, of.y], [None, of.library.ones(2)], inputs=[of.x]),
    "of several, all": lambda of: of.library.autograd.backward((of.z, of.y.sum())),
    "of a leaf": lambda of: of.x.backward(of.library.ones(2), inputs=of.x),
    "of another leaf": lambda of: of.x.backward(of.library.ones(2), inputs=of.w),
    "of the same twice": lambda of: of.library.autograd.backward([of.y, of.y], [of.library.ones(2)] * 2),
}


@pytest.mark.parametrize("name", ASKED)
def test_only_what_is_asked_for_gets_a_gradient_as_in_pytorch(name: str) -> None:
    found = []
    for library in LIBRARIES:
        of = Leaves(library)
        ASKED[name](of)
        found.append((of.gradients(), of.calls))
    assert found[0] == found[1]


def test_grad_passes_by_what_was_not_asked_for() -> None:
    for library in LIBRARIES:
        of = Leaves(library)
        library.autograd.grad(of.z, of.x)
        assert of.calls == []


def test_what_lies_before_an_input_is_there_for_another_walk() -> None:
    found = []
    for library in LIBRARIES:
        of = Leaves(library)
        (dy,) = library.autograd.grad(of.z, of.y)
        of.y.backward(dy)
        found.append(of.gradients())
    assert found[0] == found[1]
    of = Leaves(mn)
    (dy,) = grad(of.z, of.y, create_graph=True, retain_graph=False)
    of.y.backward(dy)
    assert of.w.grad is not None
    with pytest.raises(RuntimeError, match="freed"):
        of.z.backward()


def test_what_is_not_needed_is_not_computed() -> None:
    seen: list[tuple[bool, ...]] = []

    class Product(Function):
        def forward(self, a: Any, b: Any) -> Any:
            self.a, self.b = a, b
            return a * b

        def backward(self, dy: Any) -> Any:
            seen.append(self.needs)
            return dy * self.b if self.needs[0] else None, dy * self.a if self.needs[1] else None

    class Closed(Function):
        def forward(self, x: Any) -> Any:
            return x.copy()

    a, b, c = (mn.tensor([2.0 + i], requires_grad=True) for i in range(3))
    y = Product.apply(a, b) * Closed.apply(c)  # whose backward raises
    y.backward(inputs=[b], retain_graph=True)
    assert seen == [(False, True)]
    assert b.grad is not None
    assert b.grad.tolist() == [8.0]
    assert grad(y, a, retain_graph=True)[0].tolist() == [12.0]
    with pytest.raises(NotImplementedError, match="Closed has no backward"):
        y.backward()
    assert y.creator is not None


def test_a_walk_for_some_inputs_that_fails_leaves_the_function_as_it_was() -> None:
    class Failing(Function):
        def forward(self, a: Any, b: Any) -> Any:
            return a + b

        def backward(self, dy: Any) -> Any:
            raise ValueError("not today")

    a, b = (mn.tensor([1.0], requires_grad=True) for _ in range(2))
    y = Failing.apply(a, b)
    with pytest.raises(ValueError, match="not today"):
        y.backward(inputs=[a])
    assert y.creator.needs == (True, True)
    assert a.grad is None


def test_a_sum_at_a_result_between_is_not_changed_by_the_rest_of_the_walk() -> None:
    layer = mn.nn.Linear(3, 3)
    x = mn.ones(2, 3, requires_grad=True)
    y = layer(x)
    z = (y * 2).sum() + (layer(y) * y).sum()
    once = grad(z, y, retain_graph=True)[0].numpy().copy()
    both = grad(z, (y, x), retain_graph=True)
    np.testing.assert_array_equal(both[0].numpy(), once)


def test_grad_of_a_dict_and_zeros_for_what_is_not_used() -> None:
    for library in LIBRARIES:
        of = Leaves(library)
        found = library.autograd.grad(of.z, {"x": of.x, "none": of.unused}, materialize_grads=True)
        assert list(found) == ["x", "none"]
        assert found["none"].tolist() == [0.0, 0.0]
        for options in ({"materialize_grads": True}, {"materialize_grads": True, "create_graph": True}):
            z = (of.x * 2).sum()
            assert [g.tolist() for g in library.autograd.grad(z, (of.x, of.unused), **options)] == [[2, 2], [0, 0]]


def test_no_outputs_depend_on_nothing() -> None:
    for library in LIBRARIES:
        x = library.ones(2, requires_grad=True)
        for create_graph in (False, True):
            options = {"create_graph": create_graph, "allow_unused": True}
            assert library.autograd.grad((), x, **options) == (None,)
            with pytest.raises(RuntimeError):
                library.autograd.grad((), x, create_graph=create_graph)


CONSTANT = mn.ones(2)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (with_inputs(lambda _: []), RuntimeError, "backward: inputs is empty; expected Tensors that require grad"),
        (with_inputs(lambda _: 3), TypeError, "backward: inputs is int; expected a Tensor, or several"),
        (with_inputs(lambda of: [of.y, None]), TypeError, r"backward: inputs\[1\] is NoneType; expected a Tensor"),
        (with_inputs(lambda of: [of.y, CONSTANT]), RuntimeError, r"inputs\[1\] does not require grad"),
        (lambda of: backward_of([of.z, CONSTANT]), RuntimeError, "backward: tensor 1 does not require grad"),
        (lambda of: backward_of([of.y]), RuntimeError, r"tensor 0 has shape \(2,\); expected one .* grad_tensors"),
        (lambda of: backward_of(3), TypeError, "backward: tensors is int"),
        (lambda of: backward_of([of.z, of.z], mn.ones(())), RuntimeError, "grad_tensors has 1 elements; expected 2"),
        (lambda of: backward_of(of.z, 1.0), TypeError, r"grad_tensors\[0\] is float; expected a Tensor or None"),
        (lambda of: grad(of.z, []), RuntimeError, "autograd.grad: inputs is empty"),
        (lambda of: grad(of.z, 3), TypeError, "autograd.grad: inputs is int"),
        (lambda of: grad([of.z, 2], of.x), TypeError, r"autograd.grad: outputs\[1\] is int"),
        (
            lambda of: grad(of.z, of.x, allow_unused=False, materialize_grads=True),
            ValueError,
            "allow_unused is False and materialize_grads is True",
        ),
        (lambda of: grad([of.y, of.z], of.x, mn.ones(2)), RuntimeError, "grad_outputs has 1 elements; expected 2"),
    ],
)
def test_what_is_wrong_is_named_and_changes_nothing(call: Any, error: type[Exception], said: str) -> None:
    of = Leaves(mn)
    with pytest.raises(error, match=said):
        call(of)
    of.z.backward()
    assert of.y.grad is None  # it was not told to retain its gradient
