"""A Wasserstein GAN with a gradient penalty: it learns to draw points from eight clusters on a circle.

The penalty keeps the critic's slope near 1 between drawn and real points (Gulrajani et al. 2017, arXiv:1704.00028). It
is a function of a gradient, so training differentiates that gradient: `create_graph=True`, here through Linear,
LayerNorm and SiLU. A GAN without the penalty tends to draw only a few of the clusters. Needs: pip install matplotlib.
"""

import argparse

import numpy as np
from matplotlib.figure import Figure

import minorm as mn
from minorm import nn, optim

CLUSTERS, SPREAD, BATCH, NOISE = 8, 0.05, 128, 8

options = argparse.ArgumentParser(description=__doc__)
options.add_argument("--steps", type=int, default=1200)
options.add_argument("-o", "--out", default="wgan_gp.png", help="the picture to write")

args = options.parse_args()
mn.manual_seed(0)
rng = np.random.default_rng(0)
angles = 2 * np.pi * np.arange(CLUSTERS) / CLUSTERS
centres = np.stack([np.cos(angles), np.sin(angles)], 1)


def real_points(n):
    points = centres[rng.integers(CLUSTERS, size=n)] + SPREAD * rng.standard_normal((n, 2))
    return mn.tensor(points.astype(np.float32))


generator = nn.Sequential(
    nn.Linear(NOISE, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)
)  # fmt: skip
critic = nn.Sequential(
    nn.Linear(2, 64), nn.SiLU(), nn.Linear(64, 64), nn.LayerNorm(64), nn.SiLU(), nn.Linear(64, 1)
)  # fmt: skip
generator_optimizer = optim.Adam(generator.parameters(), lr=0.001, betas=(0.5, 0.9))
critic_optimizer = optim.Adam(critic.parameters(), lr=0.002, betas=(0.5, 0.9))


def gradient_penalty(real, drawn):
    """How far the slope of the critic is from 1, on the way from real points to drawn ones."""
    share = mn.rand(len(real), 1)
    between = (share * real + (1 - share) * drawn).requires_grad_()
    (slope,) = mn.autograd.grad(critic(between).sum(), between, create_graph=True)
    return ((slope.square().sum(1) + 1e-12).sqrt() - 1).square().mean()


for step in range(args.steps):
    for _ in range(3):
        real = real_points(BATCH)
        drawn = generator(mn.randn(BATCH, NOISE)).detach()
        distance = critic(real).mean() - critic(drawn).mean()
        penalty = gradient_penalty(real, drawn)
        critic_optimizer.zero_grad()
        (penalty - distance).backward()
        critic_optimizer.step()
    generator_optimizer.zero_grad()
    (-critic(generator(mn.randn(BATCH, NOISE))).mean()).backward()
    generator_optimizer.step()
    if step % 200 == 199:
        print(f"step {step + 1:4}  distance {distance.item():6.3f}  penalty {penalty.item():.4f}")

with mn.no_grad():
    points = generator(mn.randn(2000, NOISE)).numpy()
far = np.linalg.norm(points[:, None] - centres, axis=2)
nearest, near = far.argmin(1), far.min(1) < 0.3
shares = np.bincount(nearest[near], minlength=CLUSTERS) / len(points)
print(f"drawn points near a cluster: {near.mean():.3f}, in the rarest cluster: {shares.min():.3f}")

figure = Figure(figsize=(4, 4), layout="constrained")
axes = figure.subplots()
axes.scatter(*points.T, s=3, label="drawn")
axes.scatter(*real_points(300).numpy().T, s=3, label="real")
axes.legend()
figure.savefig(args.out, dpi=80)
print(f"wrote {args.out}")
