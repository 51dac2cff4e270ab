"""Random tensors: shapes, types, ranges, moments, and the user's generators."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn


def test_like_takes_shape_and_type_of_x() -> None:
    x = mn.zeros(3, 4, dtype=mn.float64)
    for y in (mn.randn_like(x), mn.rand_like(x), mn.randint_like(x, 5), mn.empty_like(x)):
        assert y.shape == (3, 4)
        assert y.dtype == mn.float64
    assert mn.randn_like(x, dtype=mn.float32, requires_grad=True).requires_grad
    assert set(mn.randint_like(mn.zeros(500), 2, 5).tolist()) == {2, 3, 4}


def test_a_generator_of_ones_own_repeats_and_leaves_the_other_alone() -> None:
    mn.manual_seed(0)
    expected = mn.randn(3).numpy()
    mn.manual_seed(0)
    first = mn.randn(5, generator=mn.Generator().manual_seed(7)).numpy()
    np.testing.assert_array_equal(mn.randn(3).numpy(), expected)
    np.testing.assert_array_equal(mn.randn(5, generator=mn.Generator().manual_seed(7)).numpy(), first)
    with pytest.raises(TypeError, match="generator is int; expected a Generator"):
        mn.rand(3, generator=3)


def test_normal_broadcasts_and_wants_a_size_for_numbers() -> None:
    mn.manual_seed(1)
    x = mn.normal(mn.zeros(4, 1), mn.ones(10_000) * 2)
    assert x.shape == (4, 10_000)
    assert abs(x.std().item() - 2) < 0.05
    assert mn.normal(3.0, 0.0, (2,)).tolist() == [3.0, 3.0]
    with pytest.raises(TypeError, match="expected a size"):
        mn.normal(0.0, 1.0)
    with pytest.raises(ValueError, match="std is -1"):
        mn.normal(0.0, -1.0, (2,))


def test_bernoulli_and_multinomial_follow_their_probabilities() -> None:
    mn.manual_seed(2)
    assert abs(mn.bernoulli(mn.full((20_000,), 0.3)).mean().item() - 0.3) < 0.02
    weights = mn.tensor([[1.0, 3.0, 0.0], [0.0, 1.0, 1.0]])
    drawn = mn.multinomial(weights, 20_000, replacement=True)
    share = [(row == 1).float().mean().item() for row in drawn]
    assert abs(share[0] - 0.75) < 0.02
    assert abs(share[1] - 0.5) < 0.02
    assert sorted(weights[0].multinomial(2).tolist()) == [0, 1]
    with pytest.raises(ValueError, match="2 weights above 0; expected at least 3"):
        mn.multinomial(weights, 3)
    with pytest.raises(ValueError, match="outside of 0 to 1"):
        mn.bernoulli(mn.tensor([1.5]))


def test_without_replacement_the_first_place_has_its_probability() -> None:
    mn.manual_seed(3)
    first = mn.stack([mn.multinomial(mn.tensor([1.0, 3.0]), 2)[0] for _ in range(4000)])
    assert abs((first == 1).float().mean().item() - 0.75) < 0.03


def test_filling_in_place() -> None:
    mn.manual_seed(4)
    x = mn.zeros(10_000)
    assert x.normal_(2, 3) is x
    assert abs(x.mean().item() - 2) < 0.15
    assert abs(x.std().item() - 3) < 0.15
    x.uniform_(-1, 1)
    assert x.min().item() >= -1
    assert x.max().item() < 1
    assert abs(x.mean().item()) < 0.05
    assert abs(x.bernoulli_(0.2).mean().item() - 0.2) < 0.02
    assert set(mn.zeros(200, dtype=mn.int64).random_(3).tolist()) == {0, 1, 2}
    w = mn.nn.Parameter(mn.zeros(3))
    w.data.normal_()
    assert w.abs().sum().item() > 0
    with pytest.raises(RuntimeError, match="leaf that requires grad"):
        w.normal_()


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        ("bool", 1), ("uint8", 255), ("int8", 127), ("int16", 2**15 - 1), ("int32", 2**31 - 1), ("int64", 2**63 - 1),
        ("float16", 2**11), ("bfloat16", 2**8), ("float32", 2**24), ("float64", 2**53),
    ],
)  # fmt: skip
def test_random_draws_what_a_type_holds(kind: str, most: int) -> None:
    """From 0 to the largest integer, or the largest up to which every whole number is there, as PyTorch does."""
    mn.manual_seed(0)
    found = mn.zeros(2000, dtype=getattr(mn, kind)).random_()
    values = found.double().numpy() if kind != "int64" else found.numpy()
    assert found.dtype == getattr(mn, kind)
    assert values.min() >= 0
    assert values.max() <= most
    assert (values == np.floor(values)).all()
    assert abs(values.mean() / most - 0.5) < 0.05  # all of it, evenly


@pytest.mark.parametrize(
    ("kind", "bounds"),
    [("uint8", (300,)), ("bool", (0, 3)), ("int8", (-200, 5)), ("uint16", (-1, 5)), ("float16", (70000,))],
)
def test_random_refuses_what_a_type_cannot_hold(kind: str, bounds: tuple[int, ...]) -> None:
    x = mn.zeros(3, dtype=getattr(mn, kind))
    with pytest.raises(ValueError, match=rf"random_: from_=.*, x is {kind}; expected from_ >= "):
        x.random_(*bounds)
    assert x.tolist() == [0, 0, 0]
    assert set(mn.zeros(100, dtype=mn.bool).random_(0, 2).tolist()) == {True, False}
    assert set(mn.zeros(100, dtype=mn.int8).random_(-2, 1).tolist()) == {-2, -1, 0}
