"""Products of Jacobians and Hessians with vectors, as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn

torch = pytest.importorskip("torch")


def mixed(x: Any, y: Any) -> Any:
    """Two results of two inputs."""
    return (x * x).sum(1) * y, (x.exp() @ x.mT).sum() * y


def number(x: Any, y: Any) -> Any:
    return (x * x * x).sum() * (y * y).sum() + y.exp().sum()


def linear(x: Any, y: Any) -> Any:
    return x.sum() + 3 * y.sum()


def unused(x: Any, y: Any) -> Any:
    return (x * x).sum()


def both(function: Callable[[Any], Any], *arrays: Any) -> tuple[Any, Any]:
    """The answers of minorm and of PyTorch, as nested tuples of arrays."""
    found = function(mn, *[mn.tensor(a) for a in arrays]), function(torch, *[torch.tensor(a) for a in arrays])
    return tuple(nested(value) for value in found)  # type: ignore[return-value]


def nested(value: Any) -> Any:
    return tuple(map(nested, value)) if isinstance(value, tuple) else value.detach().numpy()


def assert_same(found: Any, expected: Any) -> None:
    assert isinstance(found, tuple) == isinstance(expected, tuple)
    if isinstance(found, tuple):
        for a, b in zip(found, expected, strict=True):
            assert_same(a, b)
    else:
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.fixture
def arrays(rng: np.random.Generator) -> list[Any]:
    return [rng.standard_normal(shape) for shape in ((2, 3), (2,), (2, 3), (2,))]


@pytest.mark.parametrize("func", [number, linear, unused])
@pytest.mark.parametrize("name", ["hvp", "vhp", "jvp", "vjp"])
def test_of_a_number(name: str, func: Any, arrays: list[Any]) -> None:
    def run(library: Any, x: Any, y: Any, v: Any, w: Any) -> Any:
        given = None if name == "vjp" else (v, w)
        return getattr(library.autograd.functional, name)(func, (x, y), given)

    assert_same(*both(run, *arrays))


@pytest.mark.parametrize("name", ["jvp", "vjp"])
def test_of_several_results(name: str, arrays: list[Any], rng: np.random.Generator) -> None:
    of_results = rng.standard_normal(2), rng.standard_normal(2)

    def run(library: Any, x: Any, y: Any, v: Any, w: Any) -> Any:
        given = (v, w) if name == "jvp" else tuple(library.tensor(a) for a in of_results)
        return getattr(library.autograd.functional, name)(mixed, (x, y), given)

    assert_same(*both(run, *arrays))


@pytest.mark.parametrize("name", ["hvp", "vhp"])
def test_of_one_input(name: str, arrays: list[Any]) -> None:
    def run(library: Any, x: Any, v: Any) -> Any:
        return getattr(library.autograd.functional, name)(lambda x: (x * x * x).sum(), x, v)

    assert_same(*both(run, arrays[0], arrays[2]))


def test_results_are_in_the_graph_where_asked(arrays: list[Any]) -> None:
    def run(library: Any, x: Any, v: Any) -> Any:
        x.requires_grad_()
        _, product = library.autograd.functional.vhp(lambda x: (x**4).sum(), x, v, create_graph=True)
        return library.autograd.grad(product.sum(), x)[0]

    assert_same(*both(run, arrays[0], arrays[2]))
    _, product = mn.autograd.functional.vhp(lambda x: (x**4).sum(), mn.ones(2, requires_grad=True), mn.ones(2))
    assert not product.requires_grad


def test_what_is_wrong_is_named() -> None:
    functional, x = mn.autograd.functional, mn.ones(2)
    with pytest.raises(RuntimeError, match=r"vhp: func gives shape \(2,\); expected one Tensor of one element"):
        functional.vhp(lambda x: x * 2, x, x)
    with pytest.raises(
        RuntimeError, match="jvp: v is None; expected a vector, because inputs has more than one element"
    ):
        functional.jvp(lambda x: x * 2, x)
    with pytest.raises(RuntimeError, match=r"vjp: v has shapes \[\(3,\)\]; expected \[\(2,\)\]"):
        functional.vjp(lambda x: x * 2, x, mn.ones(3))
    with pytest.raises(TypeError, match=r"hvp: inputs\[0\] is .*; expected a Tensor"):
        functional.hvp(lambda x: x.sum(), 3.0, x)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"jvp: the result of func\[0\] is"):
        functional.jvp(lambda x: 3.0, x, x)
    with pytest.raises(RuntimeError, match="vjp: the outputs do not depend on an input; strict=False gives zeros"):
        functional.vjp(unused, (x, x), strict=True)
