"""Values and gradients beside PyTorch's in float64; draws by their moments; and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import distributions as ours

torch = pytest.importorskip("torch")
theirs = torch.distributions

Arguments = dict[str, np.ndarray | float]
CASES: dict[str, tuple[str, Callable[[np.random.Generator], Arguments]]] = {
    "normal": ("Normal", lambda r: {"loc": r.standard_normal((3, 4)), "scale": r.uniform(0.1, 3, 4)}),
    "normal of a number": ("Normal", lambda r: {"loc": r.standard_normal(3), "scale": 0.5}),
    "bernoulli": ("Bernoulli", lambda r: {"probs": r.uniform(0.01, 0.99, (2, 3))}),
    "bernoulli of logits": ("Bernoulli", lambda r: {"logits": r.normal(0, 3, (2, 3))}),
    "bernoulli at its ends": ("Bernoulli", lambda _: {"probs": np.array([0.0, 1.0, 0.25])}),
    "categorical": ("Categorical", lambda r: {"probs": r.uniform(0, 3, (3, 5))}),
    "categorical of logits": ("Categorical", lambda r: {"logits": r.normal(0, 3, (2, 3, 4))}),
    "one categorical": ("Categorical", lambda r: {"logits": r.normal(0, 3, 6)}),
    "categorical with a 0": ("Categorical", lambda _: {"probs": np.array([[0.0, 1.0, 3.0], [1.0, 0.0, 0.0]])}),
}


def pair(name: str, arguments: Arguments) -> tuple[Any, Any, list[Any], list[Any]]:
    """The distribution in both libraries, and the leaves that it was made of."""
    mine = {
        k: mn.Tensor(v.copy(), requires_grad=True) if isinstance(v, np.ndarray) else v for k, v in arguments.items()
    }
    other = {k: torch.tensor(v, requires_grad=True) if isinstance(v, np.ndarray) else v for k, v in arguments.items()}
    leaves = [[v for v in given.values() if not isinstance(v, float)] for given in (mine, other)]
    return getattr(ours, name)(**mine), getattr(theirs, name)(**other), *leaves


def agree(found: Any, expected: Any, inputs: list[Any], wanted: list[Any]) -> None:
    """Values, and the gradients of their sum."""
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-9, atol=1e-12)
    assert found.shape == tuple(expected.shape)
    if expected.requires_grad and np.isfinite(expected.detach().numpy()).all():
        mine = mn.autograd.grad(found.sum(), inputs, allow_unused=True, retain_graph=True)
        other = torch.autograd.grad(expected.sum(), wanted, allow_unused=True, retain_graph=True)
        for a, b in zip(mine, other, strict=True):
            np.testing.assert_allclose(*(np.zeros(1) if g is None else g.numpy() for g in (a, b)), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_moments_and_entropy(case: str, rng: np.random.Generator) -> None:
    name, make = CASES[case]
    p, q, mine, other = pair(name, make(rng))
    for what in ("mean", "variance", "stddev", "mode", *(() if name == "Normal" else ("probs", "logits"))):
        agree(getattr(p, what), getattr(q, what), mine, other)
    agree(p.entropy(), q.entropy(), mine, other)
    agree(p.perplexity(), q.perplexity(), mine, other)
    assert (p.batch_shape, p.event_shape) == (tuple(q.batch_shape), tuple(q.event_shape))
    assert (p.has_rsample, p.has_enumerate_support) == (q.has_rsample, q.has_enumerate_support)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("sample_shape", [(), (2,), (3, 2)])
def test_log_prob(case: str, sample_shape: tuple[int, ...], rng: np.random.Generator) -> None:
    name, make = CASES[case]
    p, q, mine, other = pair(name, make(rng))
    value = q.sample(sample_shape)
    agree(p.log_prob(mn.tensor(value.numpy())), q.log_prob(value), mine, other)
    if name == "Normal":
        agree(p.cdf(mn.tensor(value.numpy())), q.cdf(value), mine, other)


@pytest.mark.parametrize("case", CASES)
def test_expand(case: str, rng: np.random.Generator) -> None:
    name, make = CASES[case]
    p, q, mine, other = pair(name, make(rng))
    shape = (5, *q.batch_shape)
    p, q = p.expand(shape), q.expand(shape)
    assert (type(p).__name__, p.batch_shape, p.sample((2,)).shape) == (name, shape, (2, *shape))
    agree(p.entropy(), q.entropy(), mine, other)
    value = q.sample()
    agree(p.log_prob(mn.tensor(value.numpy())), q.log_prob(value), mine, other)


@pytest.mark.parametrize("case", [case for case in CASES if "number" not in case])
def test_divergence(case: str, rng: np.random.Generator) -> None:
    name, make = CASES[case]
    p, q, mine, other = pair(name, make(rng))
    second = {k: np.roll(v, 1, -1) for k, v in make(rng).items()}
    p2, q2, mine2, other2 = pair(name, second)
    agree(ours.kl_divergence(p, p2), theirs.kl_divergence(q, q2), mine + mine2, other + other2)
    agree(ours.kl_divergence(p2, p), theirs.kl_divergence(q2, q), mine + mine2, other + other2)
    same = ours.kl_divergence(p, p).detach().numpy()
    np.testing.assert_allclose(same, 0, atol=1e-12)


@pytest.mark.parametrize("case", [case for case in CASES if "normal" not in case])
@pytest.mark.parametrize("expand", [True, False])
def test_all_values(case: str, expand: bool, rng: np.random.Generator) -> None:
    name, make = CASES[case]
    p, q, *_ = pair(name, make(rng))
    np.testing.assert_array_equal(p.enumerate_support(expand).numpy(), q.enumerate_support(expand).numpy())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_draws_have_the_moments(dtype: str) -> None:
    mn.manual_seed(3)
    kind, count = getattr(mn, dtype), 4000
    normal = ours.Normal(mn.tensor([-1.0, 2.0], dtype=kind), mn.tensor([0.5, 2.0], dtype=kind)).sample((count,))
    coins = ours.Bernoulli(mn.tensor([0.1, 0.75], dtype=kind)).sample((count,))
    classes = ours.Categorical(mn.tensor([[1.0, 3.0, 0.0], [0.0, 0.0, 1.0]], dtype=kind)).sample((count,))
    assert (normal.dtype, coins.dtype, classes.dtype) == (kind, kind, mn.int64)
    x = normal.double().numpy()
    np.testing.assert_allclose(x.mean(0), [-1, 2], atol=0.15)
    np.testing.assert_allclose(x.std(0), [0.5, 2], rtol=0.06)
    np.testing.assert_allclose(coins.double().numpy().mean(0), [0.1, 0.75], atol=0.03)
    shares = [np.bincount(column, minlength=3) / count for column in classes.numpy().T]
    np.testing.assert_allclose(shares, [[0.25, 0.75, 0], [0, 0, 1]], atol=0.03)
    assert not normal.requires_grad


def test_gradients_pass_rsample_and_not_sample() -> None:
    loc, scale = mn.zeros(3, requires_grad=True), mn.ones(3, requires_grad=True)
    p = ours.Normal(loc, scale)
    assert not p.sample().requires_grad
    mn.manual_seed(1)
    x = p.rsample()
    x.sum().backward()
    assert loc.grad.tolist() == [1, 1, 1]
    np.testing.assert_allclose(scale.grad.numpy(), x.detach().numpy(), rtol=1e-6)
    mn.manual_seed(1)
    np.testing.assert_array_equal(p.sample().numpy(), x.detach().numpy())


def test_numbers_and_empty_samples() -> None:
    p = ours.Normal(0, 1)
    assert (p.batch_shape, p.loc.dtype, p.sample().shape, p.sample((0, 2)).shape) == ((), mn.float32, (), (0, 2))
    assert ours.Normal(mn.zeros(2, dtype=mn.float64), 1).scale.dtype == mn.float64
    assert ours.Bernoulli(0.5).sample((3,)).shape == (3,)
    assert ours.Categorical(mn.ones(4)).sample((0,)).shape == (0,)
    assert p.log_prob(0).item() == pytest.approx(-0.9189385)
    assert ours.Categorical(mn.ones(4)).log_prob(3).item() == pytest.approx(np.log(0.25))
    assert "Normal(loc: 0.0, scale: 1.0)" in repr(p)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ours.Normal(0.0, mn.tensor([1, -1.0])),
            r"Normal: scale of shape \(2,\) holds -1.0; expected numbers above 0",
        ),
        (lambda: ours.Normal(float("nan"), 1.0), r"Normal: loc of shape \(\) holds nan; expected numbers"),
        (lambda: ours.Bernoulli(1.5), r"Bernoulli: probs of shape \(\) holds 1.5; expected numbers from 0 to 1"),
        (ours.Bernoulli, "Bernoulli: neither of probs and logits given; expected one of them"),
        (lambda: ours.Categorical(mn.ones(2), mn.ones(2)), "Categorical: both of probs and logits given"),
        (
            lambda: ours.Categorical(mn.tensor([1.0, -0.5])),
            r"Categorical: probs of shape \(2,\) holds 2.0; expected weights of at least 0",
        ),
        (lambda: ours.Categorical(mn.tensor(1.0)), r"Categorical: probs has shape \(\); expected at least one axis"),
        (lambda: ours.Bernoulli(0.5).log_prob(0.5), r"Bernoulli: value of shape \(\) holds 0.5; expected 0 and 1"),
        (lambda: ours.Categorical(mn.ones(3)).log_prob(mn.tensor(3)), "holds 3.0; expected classes, 0 to 2"),
        (lambda: ours.Normal(mn.zeros(2), 1.0).log_prob(mn.ones(3)), r"value.shape is \(3,\), batch_shape is \(2,\)"),
    ],
)
def test_what_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_without_validation() -> None:
    p = ours.Normal(0.0, -1.0, validate_args=False)
    assert p.log_prob(mn.tensor(float("nan"))).isnan().all()
    assert p.expand((2,)).log_prob(mn.zeros(2)).shape == (2,)


def test_what_is_not_there() -> None:
    with pytest.raises(NotImplementedError, match="p is a Normal, q is a Bernoulli; expected two of one kind"):
        ours.kl_divergence(ours.Normal(0, 1), ours.Bernoulli(0.5))
    with pytest.raises(
        NotImplementedError, match=r"Bernoulli.rsample: its draws have no gradient; expected sample\(\)"
    ):
        ours.Bernoulli(0.5).rsample()
    with pytest.raises(TypeError, match="Normal: loc is a str; expected a Tensor or a number"):
        ours.Normal("0", 1)
