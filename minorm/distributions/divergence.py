"""The Kullback-Leibler divergence between two distributions of the same kind."""

from __future__ import annotations

import math
from typing import Any

import minorm.functional as F
from minorm.distributions.bernoulli import Bernoulli
from minorm.distributions.categorical import Categorical
from minorm.distributions.distribution import Distribution
from minorm.distributions.normal import Normal
from minorm.support.argument_errors import checked
from minorm.support.documented import documented
from minorm.tensor.combining import broadcast_tensors, where
from minorm.tensor.tensor import Tensor


@documented({}, p="the distribution that draws", q="the distribution to compare with, of the same kind")
@checked
def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """Return the mean of log p(x) - log q(x) over draws x of p, which is 0 if p = q, and otherwise above 0.

    Raises NotImplementedError if p and q are of different kinds.

    Example:
        >>> p, q = mn.distributions.Normal(1.0, 1.0), mn.distributions.Normal(0.0, 1.0)
        >>> mn.distributions.kl_divergence(p, q)
        tensor(0.5)
    """
    for kind, formula in _FORMULAS.items():
        if isinstance(p, kind) and isinstance(q, kind):
            return formula(p, q)
    raise NotImplementedError(
        f"kl_divergence: p is a {type(p).__name__}, q is a {type(q).__name__}; expected two of one kind: "
        f"{', '.join(kind.__name__ for kind in _FORMULAS)}"
    )


def _normal(p: Any, q: Any) -> Tensor:
    ratio, distance = (p.scale / q.scale) ** 2, ((p.loc - q.loc) / q.scale) ** 2
    return 0.5 * (ratio + distance - 1 - ratio.log())


def _bernoulli(p: Any, q: Any) -> Tensor:
    ones = _term(p.probs, F.softplus(-q.logits) - F.softplus(-p.logits), q.probs)
    return ones + _term(1 - p.probs, F.softplus(q.logits) - F.softplus(p.logits), 1 - q.probs)


def _categorical(p: Any, q: Any) -> Tensor:
    return _term(p.probs, p.logits - q.logits, q.probs).sum(-1)


def _term(p: Tensor, difference: Tensor, q: Tensor) -> Tensor:
    """Return p * difference, but 0 where p is 0, and infinity where only q is 0."""
    p, difference, q = broadcast_tensors(p, difference, q)
    return where(p == 0, 0.0, where(q == 0, math.inf, p * difference))


_FORMULAS: dict[type, Any] = {Normal: _normal, Bernoulli: _bernoulli, Categorical: _categorical}
