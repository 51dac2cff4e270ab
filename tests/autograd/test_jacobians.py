"""Jacobians and Hessians, as in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from tests.autograd.test_vector_products import assert_same, both, linear, mixed, number, unused

torch = pytest.importorskip("torch")


@pytest.fixture
def arrays(rng: np.random.Generator) -> list[Any]:
    return [rng.standard_normal((2, 3)), rng.standard_normal(2)]


@pytest.mark.parametrize("func", [mixed, number, linear, unused])
def test_jacobians(func: Any, arrays: list[Any]) -> None:
    assert_same(*both(lambda library, x, y: library.autograd.functional.jacobian(func, (x, y)), *arrays))


@pytest.mark.parametrize("func", [number, linear, unused])
def test_hessians(func: Any, arrays: list[Any]) -> None:
    assert_same(*both(lambda library, x, y: library.autograd.functional.hessian(func, (x, y)), *arrays))


def test_of_one_input(arrays: list[Any]) -> None:
    def run(library: Any, x: Any) -> Any:
        functional = library.autograd.functional
        return functional.jacobian(lambda x: x.exp(), x), functional.hessian(lambda x: (x**3).sum(), x)

    assert_same(*both(run, arrays[0]))


def test_of_a_network_with_a_normalization(arrays: list[Any]) -> None:
    def run(library: Any, x: Any) -> Any:
        F = library.nn.functional
        return library.autograd.functional.hessian(lambda x: (F.layer_norm(x, (3,)).exp() * x).sum(), x)

    assert_same(*both(run, arrays[0]))


def test_in_the_graph_and_of_nothing(arrays: list[Any]) -> None:
    def run(library: Any, x: Any) -> Any:
        x.requires_grad_()
        found = library.autograd.functional.jacobian(lambda x: x**3, x, create_graph=True)
        return library.autograd.grad(found.sum(), x)[0]

    assert_same(*both(run, arrays[1]))
    assert mn.autograd.functional.jacobian(lambda x: x[:0] * 2, mn.ones(2)).shape == (0, 2)


def test_strict() -> None:
    with pytest.raises(RuntimeError, match="jacobian: the outputs do not depend on an input"):
        mn.autograd.functional.jacobian(unused, (mn.ones(2), mn.ones(2)), strict=True)
    with pytest.raises(RuntimeError, match=r"hessian: func gives shape \(2,\)"):
        mn.autograd.functional.hessian(lambda x: x * x, mn.ones(2))


def test_no_grad_around_them_changes_nothing() -> None:
    x = mn.tensor([1.0, 2.0])
    with mn.no_grad():
        assert mn.autograd.functional.jacobian(lambda x: x * x, x).tolist() == [[2, 0], [0, 4]]
        assert mn.autograd.functional.hessian(lambda x: (x**3).sum(), x).tolist() == [[6, 0], [0, 12]]


def test_strategies() -> None:
    x = mn.tensor([1.0, 2.0])
    functional = mn.autograd.functional
    for strategy in ("reverse-mode", "forward-mode"):
        found = functional.jacobian(lambda x: x * x, x, vectorize=True, strategy=strategy)
        assert found.tolist() == [[2.0, 0.0], [0.0, 4.0]]
    with pytest.raises(ValueError, match="jacobian: strategy is 'sideways'; expected 'reverse-mode' or 'forward-mode'"):
        functional.jacobian(lambda x: x * x, x, strategy="sideways")
    with pytest.raises(ValueError, match="hessian: outer_jacobian_strategy is 'up'; expected 'reverse-mode'"):
        functional.hessian(lambda x: (x * x).sum(), x, outer_jacobian_strategy="up")
