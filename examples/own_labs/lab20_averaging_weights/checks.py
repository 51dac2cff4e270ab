"""Lab 20: averages against weighted sums that are written out, and a network's average from states that are sent."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.labs.comparing import Wrong, close, numbers, true
from minorm.labs.lab import Lab

from .beside import KINDS, network, state

LAB = Lab(
    20,
    "lab20_averaging_weights",
    "Averaging weights",
    "Which of the last thousand sets of weights should a model keep?",
    minutes=60,
)


def _average(values: Any, decay: float) -> Any:
    """The weighted sum, written out: not the recursion that students write."""
    counts = decay ** np.arange(len(values) - 1, -1, -1.0)
    return np.tensordot(counts / counts.sum(), values, 1)


@LAB.check("20.1", "one step", visible=True)
def one_step(student: Any, rng: np.random.Generator) -> None:
    close(student.step(2.0, 10.0, 0.75), 4.0, "step(2.0, 10.0, 0.75)")
    for shape in ((3,), (2, 4)):
        mean, value = rng.standard_normal((2, *shape))
        close(student.step(mean, value, 0.9), 0.9 * mean + 0.1 * value, f"step of arrays of shape {shape}, decay 0.9")


@LAB.check("20.1", "averages of four numbers", visible=True)
def four_numbers(student: Any, rng: np.random.Generator) -> None:
    values = np.array([1.0, 1.0, 4.0, -2.0])
    expected = [_average(values[: t + 1], 0.75) for t in range(4)]
    close(student.averages(values, 0.75), expected, "averages([1, 1, 4, -2], 0.75)")


@LAB.check("20.1", "averages of arrays, short and long memory", points=2)
def arrays(student: Any, rng: np.random.Generator) -> None:
    for shape, decay in (((7,), 0.9), ((5, 3), 0.999), ((40, 2, 2), 0.3), ((4, 2), 0.0), ((1, 3), 0.99)):
        values = rng.standard_normal(shape) + 3
        expected = [_average(values[: t + 1], decay) for t in range(len(values))]
        close(student.averages(values, decay), expected, f"averages of values of shape {shape}, decay {decay:g}")


@LAB.check("20.2", "weights of the last values", visible=True)
def last_values(student: Any, rng: np.random.Generator) -> None:
    for decay, count in ((0.5, 3), (0.9, 1), (float(rng.uniform(0.6, 0.99)), 12)):
        expected = [_average(np.eye(count)[count - 1 - age], decay) for age in range(count)]
        close(student.weights_of_values(decay, count), expected, f"weights_of_values({decay:.3g}, {count})")


@LAB.check("20.2", "a half-life", visible=True)
def half_life(student: Any, rng: np.random.Generator) -> None:
    close(student.decay_for(1), 0.5, "decay_for(1)")
    close(student.decay_for(2), np.sqrt(0.5), "decay_for(2)")


@LAB.check("20.2", "half as much after any number of steps")
def any_half_life(student: Any, rng: np.random.Generator) -> None:
    for steps in (10, 693, int(rng.integers(20, 500))):
        what = f"decay_for({steps}) to the power of {steps}"
        decay = float(numbers(student.decay_for(steps), f"decay_for({steps})", "a number"))
        close(decay**steps, 0.5, what, 1e-9)


def _states(kind: str, rng: np.random.Generator, count: int) -> list[dict[str, Any]]:
    """States of a network: random numbers, positive variances, counters whole."""
    found = []
    for number in range(count):
        values = state(network(kind))
        for name, value in values.items():
            if np.issubdtype(value.dtype, np.integer):
                values[name] = np.array(100 + 7 * number, value.dtype)
            else:
                drawn = rng.standard_normal(value.shape) + 2
                values[name] = (np.abs(drawn) + 0.1 if "var" in name else drawn).astype(value.dtype)
        found.append(values)
    return found


def _is_buffer(name: str) -> bool:
    return name.endswith(("running_mean", "running_var", "num_batches_tracked"))


def _asked(student: Any, kind: str, rng: np.random.Generator, decay: float) -> tuple[list[dict[str, Any]], Any]:
    """Five states of a network and what the student's process says of it; Wrong where that is no such answer."""
    states = _states(kind, rng, 5)
    found = student.drive("averaged", kind=kind, states=states, decay=decay)
    after = [found["average"], found["later"], *found["models"]]
    if len(after) != 5 or not all(one.keys() == states[0].keys() for one in after):
        raise Wrong(f"the networks after update, {kind}", "all their weights", "others")
    return states, found


@LAB.check("20.3", "parameters after three steps", points=2, visible=True)
def parameters(student: Any, rng: np.random.Generator) -> None:
    for kind in KINDS:
        states, found = _asked(student, kind, rng, 0.8)
        for name in filter(lambda name: not _is_buffer(name), states[0]):
            expected = states[0][name].astype(np.float64)
            for values in states[1:-1]:
                expected = 0.8 * expected + 0.2 * values[name]
            close(found["average"][name], expected, f"{name} of the average after 3 updates, decay 0.8", 1e-5, 1e-6)


@LAB.check("20.3", "buffers are the newest", points=2)
def buffers(student: Any, rng: np.random.Generator) -> None:
    states, found = _asked(student, "images", rng, 0.7)
    for name in filter(_is_buffer, states[0]):
        close(found["average"][name], states[-2][name], f"{name} of the average after 3 updates", 0, 0)


@LAB.check("20.3", "two networks with random numbers")
def apart(student: Any, rng: np.random.Generator) -> None:
    states, found = _asked(student, "images", rng, 0.9)
    for values, model in zip(states[1:-1], found["models"], strict=True):
        for name, value in values.items():
            close(model[name], value, f"{name} of the model after update", 0, 0)
    for name, value in found["average"].items():
        what = f"{name} of the average, when training goes on in the model"
        true(np.array_equal(value, found["later"][name]), what, "as it was", "changed with the model's")


LAB.provide("20.1", step=lambda mean, value, decay: decay * mean + (1 - decay) * value)
