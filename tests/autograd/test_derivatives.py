"""Several inputs and outputs, strict and create_graph: both libraries return, record and refuse the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn

torch = pytest.importorskip("torch")


def several(x: Any, y: Any) -> Any:
    return x * y, x.sum() + 0 * y.sum()


def energy(x: Any, y: Any) -> Any:
    return (x**2 * y**2).sum()


def product(x: Any, y: Any) -> Any:
    return (x * y).sum()


def unused(x: Any, y: Any) -> Any:
    return (x**2).sum()


# the derivative's name, the function that it differentiates, the number of inputs, and the vectors
CASES: dict[str, tuple[str, Callable[..., Any], int, tuple[Any, ...]]] = {
    "jacobian of one": ("jacobian", lambda x: x**3, 1, ()),
    "jacobian of several": ("jacobian", several, 2, ()),
    "jacobian that an input has no part in": ("jacobian", lambda x, y: x * x, 2, ()),
    "jacobian of what does not depend on x": ("jacobian", lambda x: x.detach() * 2, 1, ()),
    "jacobian of x itself": ("jacobian", lambda x: x, 1, ()),
    "jacobian of a view": ("jacobian", lambda x: x[0], 1, ()),
    "jacobian of a change in place": ("jacobian", lambda x: (x * 1).mul_(x), 1, ()),
    "hessian of one": ("hessian", lambda x: (x**3).sum(), 1, ()),
    "hessian of several": ("hessian", energy, 2, ()),
    "hessian of a product": ("hessian", product, 2, ()),
    "hessian of a sum": ("hessian", lambda x: x.sum(), 1, ()),
    "vjp of several": ("vjp", several, 2, ([1.0, 2.0], 3.0)),
    "jvp of several": ("jvp", several, 2, ([1.0, 2.0], [3.0, 1.0])),
    "jvp of a product with 2": ("jvp", lambda x: x * 2, 1, ([1.0, 2.0],)),
    "vhp of several": ("vhp", energy, 2, ([1.0, 2.0], [3.0, 1.0])),
    "vhp that an input has no part in": ("vhp", unused, 2, ([1.0, 2.0], [3.0, 1.0])),
    "hvp of several": ("hvp", energy, 2, ([1.0, 2.0], [3.0, 1.0])),
    "hvp of a sum": ("hvp", lambda x: (x * 2).sum(), 1, ([1.0, 2.0],)),
    "hvp that an input has no part in": ("hvp", unused, 2, ([1.0, 2.0], [3.0, 1.0])),
}


def outcome(library: Any, name: str, **options: Any) -> Any:
    """Return the numbers and whether they are in the graph, or that the call raises."""
    kind, function, count, vectors = CASES[name]

    def tensor(numbers: Any, requires_grad: bool = False) -> Any:
        return library.tensor(numbers, dtype=library.float64, requires_grad=requires_grad)

    def shown(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return [shown(v) for v in value]
        return np.round(value.detach().numpy(), 9).tolist(), value.requires_grad

    inputs = tensor([1.0, 2.0], True), tensor([3.0, 4.0])
    given = [tensor(v) for v in vectors]
    arguments = [
        inputs if count == 2 else inputs[0],
        *([tuple(given) if len(given) > 1 else given[0]] if given else []),
    ]
    try:
        return shown(getattr(library.autograd.functional, kind)(function, *arguments, **options))
    except RuntimeError:
        return "raises"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_as_in_pytorch(name: str, create_graph: bool, strict: bool) -> None:
    options = {"create_graph": create_graph, "strict": strict}
    assert outcome(mn, name, **options) == outcome(torch, name, **options)


def test_a_derivative_that_is_to_be_differentiated_and_is_constant() -> None:
    with pytest.raises(RuntimeError, match="jvp: a derivative does not depend on the inputs"):
        mn.autograd.functional.jvp(lambda x: x * 2, mn.ones(2), mn.ones(2), create_graph=True, strict=True)


@pytest.mark.parametrize("kind", ["vjp", "jvp", "vhp", "hvp"])
def test_a_vector_of_another_type_is_named(kind: str) -> None:
    x, v = mn.ones(1), mn.ones(1, dtype=mn.float64)
    with pytest.raises(TypeError, match=rf"{kind}: v\[0\] is float64; expected float32, the type of "):
        getattr(mn.autograd.functional, kind)(lambda x: (x * x).sum().reshape(1), x, v)


def test_a_third_derivative_through_a_hessian() -> None:
    x = mn.tensor([1.0, 2.0], requires_grad=True)
    second = mn.autograd.functional.hessian(lambda x: (x**4).sum(), x, create_graph=True)
    np.testing.assert_allclose(mn.autograd.grad(second.sum(), x)[0].numpy(), 24 * x.numpy())
