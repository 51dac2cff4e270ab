"""Probability distributions with gradients, with PyTorch's names: Normal, Categorical and Bernoulli.

p = Normal(loc, scale)
x = p.rsample()                      gradients reach loc and scale
loss = -p.log_prob(target).mean()
kl_divergence(p, Normal(0.0, 1.0))
"""

from minorm.distributions.bernoulli import Bernoulli
from minorm.distributions.categorical import Categorical
from minorm.distributions.distribution import Distribution
from minorm.distributions.divergence import kl_divergence
from minorm.distributions.normal import Normal

__all__ = ["Bernoulli", "Categorical", "Distribution", "Normal", "kl_divergence"]
