# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 20: Averaging weights
#
# **The question.** Training with small batches never comes to rest: each step overshoots a little, in a random
# direction. Which of the last thousand sets of weights should a model keep?
#
# All of them, a little. An exponential moving average of the weights costs one line a step, and the averaged model is
# often better than any that training went through. You will write the average, find out how long it remembers, and
# keep one of a network, where BatchNorm needs special care.
#
# You need to know what a training step does; lab 4 helps. Time: about 60 minutes.

# %%
import numpy as np

import minorm as mn
from minorm.labs.visible import checker

check = checker(20, globals(), lab_dir="labs")

# %% tags=["plot"]
import matplotlib.pyplot as plt

from minorm.labs.pictures import show
from minorm.plots import BLUE, GREEN, GREY, ORANGE, STYLE

plt.rcParams.update(STYLE)

# %% [markdown]
# ## Task 20.1: the average
#
# After each step of training the average moves a little towards the newest value v:
#
#     mean = decay * mean + (1 - decay) * v
#
# It begins with 0, and that beginning is no value: after one step of v = 1 with decay 0.9 the mean is 0.1. After t
# steps the values have got the share 1 - decay^t of it all, and the beginning the rest. Adam divides by that share
# (Kingma and Ba, 2014), and so do you:
#
#     average after t steps = mean / (1 - decay^t)
#
# `values` holds one value after the other along axis 0; each may be a number or an array.


# %%
def step(mean, value, decay):
    """The mean after one more value."""
    # SOLUTION 20.1: one step of the mean
    return decay * mean + (1 - decay) * value
    # END


def averages(values, decay):
    """The average after each value, without the share of the beginning: an array of the shape of values."""
    # SOLUTION 20.1: the mean after each value, divided by the share that the values have
    mean = np.zeros(values.shape[1:])
    found = []
    for t, value in enumerate(values, 1):
        mean = step(mean, value, decay)
        found.append(mean / (1 - decay**t))
    return np.array(found)
    # END


# %% tags=["check"]
check("20.1")

# %% [markdown]
# ## Task 20.2: how long it remembers
#
# Put the formula into itself and the average becomes a weighted sum: the newest value counts 1 - decay, the one before
# (1 - decay) decay, the next (1 - decay) decay^2, all divided by 1 - decay^t. The weights add up to 1.
#
# People choose a decay of 0.999 or 0.9999, and hardly anybody can say how those differ. A half-life can be understood:
# it is the number of steps after which a value counts half as much as it did.


# %%
def weights_of_values(decay, count):
    """The weights that the average after `count` values gives to them, newest first."""
    # SOLUTION 20.2: what each value counts
    return (1 - decay) * decay ** np.arange(count) / (1 - decay**count)
    # END


def decay_for(half_life):
    """The decay with which a value counts half as much after so many steps."""
    # SOLUTION 20.2: the decay of a half-life
    return 0.5 ** (1 / half_life)
    # END


# %% tags=["check"]
check("20.2")

# %% [markdown]
# ### The picture
#
# Stochastic gradient descent on a bowl, in 50 dimensions: the true gradient is x itself, and each step sees it with
# noise. The weights start 10 away from the minimum, and soon wander about at a distance that the noise decides. Which
# average comes closest, and which of them is the first to get there?

# %% tags=["plot"]
RATE, STEPS = 0.1, 2000


def path():
    """The weights after each step."""
    rng = np.random.default_rng(0)
    x = np.full(50, 10 / np.sqrt(50))
    found = []
    for _ in range(STEPS):
        x = x - RATE * (x + rng.standard_normal(50))
        found.append(x)
    return np.array(found)


weights = path()
figure, panel = plt.subplots(figsize=(8.5, 4.8), layout="constrained")
after = np.arange(1, STEPS + 1)
panel.loglog(after, np.linalg.norm(weights, axis=1), color=GREY, linewidth=1, label="the weights themselves")
for half_life, color, style in ((10, ORANGE, "--"), (100, GREEN, "-."), (1000, BLUE, "-")):
    decay = decay_for(half_life)
    distance = np.linalg.norm(averages(weights, decay), axis=1)
    panel.loglog(after, distance, style, color=color, linewidth=2, label=f"half-life {half_life}: decay {decay:.4f}")
panel.set(
    title="A longer memory averages more noise away, and forgets the start later",
    xlabel="steps",
    ylabel="distance from the minimum",
)
panel.legend()
show(
    figure,
    "Distance from the minimum against steps, both logarithmic, for noisy weights and three averages of them. The "
    "weights fall from 10 to about 1.6 within 30 steps and stay there. The average with half-life 10 levels out at "
    "about 1, that with 100 at about 0.4. The one with half-life 1000 comes down last and is still falling at the end.",
)

# %% [markdown]
# ## Task 20.3: a network
#
# Now the weights of a model. `update(average, model, decay)` is called after each step of training. Both are networks
# of the same kind; `average` has the weights of the first step already, so nothing is to be divided here.
#
# - Each *parameter* of the average moves towards the model's by your `step`.
# - *Buffers* are BatchNorm's running statistics and its counter of batches. They are averages already, and the counter
#   is a whole number: the average takes over the newest as they are, as PyTorch's `AveragedModel` does.
# - The model is not changed, and the average keeps separate numbers: training goes on in the model's.
#
# `zip(average.parameters(), model.parameters())` goes through both at once, and `.buffers()` likewise. `p.numpy()` is
# the array of a parameter, and `p.copy_(mn.tensor(array))` writes into it, inside `with mn.no_grad():`.


# %%
def update(average, model, decay):
    """Move the average's parameters towards the model's, and take over its buffers; both in place, in the average."""
    # SOLUTION 20.3: parameters move by a step, buffers are taken over
    with mn.no_grad():
        for mine, latest in zip(average.parameters(), model.parameters(), strict=True):
            mine.copy_(mn.tensor(step(mine.numpy(), latest.numpy(), decay)))
        for mine, latest in zip(average.buffers(), model.buffers(), strict=True):
            mine.copy_(latest)
    # END


# %% tags=["check"]
check("20.3")

# %% [markdown]
# ### Beside the library's
#
# A small network learns y = |x| from batches of eight, while your average and the library's `AveragedModel` watch.
# They agree to the rounding of float32. Which loss is smaller, that of the trained model or that of the average?

# %% tags=["plot"]
import copy

import minorm.functional as F
from minorm import nn, optim
from minorm.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

DECAY = decay_for(50)
mn.manual_seed(0)
rng = np.random.default_rng(0)
model = nn.Sequential(nn.Linear(1, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
average, theirs = copy.deepcopy(model), AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
theirs.update_parameters(model)
optimizer = optim.SGD(model.parameters(), lr=0.1)
for _ in range(500):
    x = rng.standard_normal((8, 1)).astype(np.float32)
    loss = F.mse_loss(model(mn.tensor(x)), mn.tensor(np.abs(x)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    update(average, model, DECAY)
    theirs.update_parameters(model)

pairs = zip(average.parameters(), theirs.module.parameters(), strict=True)
print(f"largest difference from the library's average {max(np.abs(a.numpy() - b.numpy()).max() for a, b in pairs):.0e}")
x = rng.standard_normal((1000, 1)).astype(np.float32)
with mn.no_grad():
    for name, one in {"trained": model, "average": average}.items():
        print(f"{name}: loss {F.mse_loss(one.eval()(mn.tensor(x)), mn.tensor(np.abs(x))).item():.4f}")

# %% [markdown]
# ## To think about
#
# 1. The running statistics that the average takes over were measured on the *model's* activations. Are they the
#    statistics of the averaged model's? What would you do before you publish it?
# 2. Independent values with variance 1 go into an average with decay d. What is the variance of the average after many
#    steps? Compare with the picture: by how much should a half-life of 100 lower the distance, and why is it less?
# 3. Training in 16 bits keeps the weights in float32. Why would an average with decay 0.9999 in bfloat16 never move?
