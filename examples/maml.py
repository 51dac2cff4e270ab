"""MAML: find weights from which one step of gradient descent learns a new task, a sine curve known at ten points.

Training differentiates through that step, so it needs gradients of gradients (Finn et al. 2017, arXiv:1703.03400).
"""

import argparse
from itertools import pairwise

import numpy as np

import minorm as mn
import minorm.functional as F
from minorm import optim

mn.manual_seed(0)
rng = np.random.default_rng(0)
options = argparse.ArgumentParser(description=__doc__)
options.add_argument("--steps", type=int, default=1200)
args = options.parse_args()
sizes = [1, 40, 40, 1]
weights = [w for i, o in pairwise(sizes) for w in (mn.randn(o, i) * (2 / i) ** 0.5, mn.zeros(o))]
weights = [w.requires_grad_() for w in weights]
RATE = 0.1


def network(x, w):
    for i in range(0, 4, 2):
        x = F.relu(F.linear(x, w[i], w[i + 1]))
    return F.linear(x, w[4], w[5])


def task():
    """Ten points to learn from and ten to be judged by, of one curve."""
    x = rng.uniform(-5, 5, (20, 1))
    y = rng.uniform(0.1, 5) * np.sin(x + rng.uniform(0, np.pi))
    return [mn.tensor(a.astype(np.float32)) for a in (x[:10] / 5, y[:10], x[10:] / 5, y[10:])]


def adapted_loss(w, steps, create_graph):
    """The loss on the other ten points after some steps on the first ten."""
    x, y, other_x, other_y = task()
    for _ in range(steps):
        slopes = mn.autograd.grad(F.mse_loss(network(x, w), y), w, create_graph=create_graph)
        w = [a - RATE * slope for a, slope in zip(w, slopes, strict=True)]
    return F.mse_loss(network(other_x, w), other_y)


def score(steps):
    apart = [w.detach().requires_grad_() for w in weights]
    return np.mean([adapted_loss(apart, steps, False).item() for _ in range(200)])


before = score(1)
optimizer = optim.Adam(weights, lr=0.003)
for _ in range(args.steps):
    optimizer.zero_grad()
    loss = sum(adapted_loss(weights, 1, True) for _ in range(5)) / 5
    loss.backward()
    optimizer.step()
print(f"loss after one step: {before:.3f} of random weights, {score(1):.3f} of learned ones, {score(0):.3f} without it")
print(f"left of the loss by one step: {score(1) / score(0):.3f}")
