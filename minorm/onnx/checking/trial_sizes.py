"""Choose the sizes at which we try a model: three lengths for every free axis.

One of the three lengths is not a multiple of a stride.

Sizes come in groups; we use the first size of each group that the model accepts. If there is an example, the first size
is the example's size, and the other sizes are similar. Then the values of all inputs are taken from the example,
because random indices might be out of range.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.onnx.checking import sandbox_worker

# Lengths to try for free axes, for the first axis and the others: usual lengths, multiples of 16, odd lengths.
USUAL = ((2, (8,)), (2, (32,)), (2, (64,)), (2, (224,)), (1, (32,)), (1, (224,)), (2, (299,)), (1, (1,)), (1, (8,)))
EVEN = tuple((n, lengths) for n in (3, 1) for lengths in ((16,), (48,), (96,), (160,), (256,), (6,), (4,)))
_ODD = ((13, 19), (37, 43), (37,), (71, 83), (71,), (227, 239), (227,), (7, 5), (5,), (3,))
_OTHERS = ((96, 128), (64, 128), (320, 288), (12,), (2,))
ODD = tuple((n, lengths) for n in (5, 1) for lengths in (*_ODD, *_OTHERS))
MOST = 1 << 26  # the most elements of an input

Labels = Mapping[str, Sequence[int | str]]  # input -> its lengths: numbers, or names that equal lengths share


@dataclass(frozen=True)
class Size:
    """Describes inputs of one size.

    inputs    the element type and shape of each input, by name
    bound     the lengths of free axes, by name
    high      random integers are below this bound
    example   the arrays from which the values are taken; None for random values
    exact     True if the inputs are the example itself
    """

    inputs: dict[str, tuple[int, list[int]]]
    bound: dict[str, int] = field(default_factory=dict)
    high: int = 1
    example: Mapping[str, Any] | None = None
    exact: bool = False

    def __str__(self) -> str:
        return ", ".join(f"{name} {tuple(shape)}" for name, (_, shape) in self.inputs.items())

    def arrays(self) -> dict[str, Any]:
        """Return the arrays of the inputs; a size always returns the same arrays."""
        if self.example is None:
            drawn = {n: sandbox_worker.drawn(elem, shape, self.high) for n, (elem, shape) in self.inputs.items()}
            halves = {n for n, (elem, _) in self.inputs.items() if elem == sandbox_worker.BFLOAT16}
            return {n: array.view(dtypes.bfloat16) if n in halves else array for n, array in drawn.items()}
        if self.exact:
            return dict(self.example)
        rng = np.random.default_rng(0)
        return {name: _like(self.example[name], shape, rng) for name, (_, shape) in self.inputs.items()}

    def request(self) -> dict[str, Any]:
        """Return the size in the form that sandbox.try_all takes."""
        if self.example is None:
            return {"inputs": self.inputs, "high": self.high}
        return {"arrays": self.arrays()}


def _like(array: Any, shape: Sequence[int], rng: Any) -> Any:
    """Return an array with the given shape, whose elements are random elements of `array`.

    Floats are also multiplied by random factors from 0.5 to 1. If all floats are 0, random floats are drawn instead.
    """
    for axis, n in enumerate(shape):
        if n != array.shape[axis]:
            array = np.take(array, rng.integers(0, max(1, array.shape[axis]), n), axis)
    if not dtypes.is_float(array.dtype):
        return np.ascontiguousarray(array).reshape(shape)
    wide = array.astype(np.float64)
    other = wide * rng.uniform(0.5, 1, shape) if wide.any() else rng.standard_normal(shape)
    return np.asarray(other).astype(array.dtype)


def usual(labels: Labels, elems: Mapping[str, int]) -> list[list[Size]]:
    """Return groups of sizes for a model without an example; return only one group if no length is free."""
    free = any(isinstance(n, str) for lengths in labels.values() for n in lengths)
    return [list(_drawn(labels, elems, tries)) for tries in ((USUAL, EVEN, ODD) if free else (USUAL[:1],))]


def _drawn(labels: Labels, elems: Mapping[str, int], tries: Sequence[tuple[int, tuple[int, ...]]]) -> Iterator[Size]:
    first = {lengths[0] for lengths in labels.values() if lengths and isinstance(lengths[0], str)}
    others = list(dict.fromkeys(n for ls in labels.values() for n in ls if isinstance(n, str) and n not in first))
    seen = []
    for batch, choices in tries:
        bound = dict.fromkeys(first, batch) | {n: choices[i % len(choices)] for i, n in enumerate(others)}
        inputs = _inputs(labels, elems, bound)
        if inputs in seen or any(math.prod(shape) > MOST for _, shape in inputs.values()):
            continue
        seen.append(inputs)
        whole = any(elem not in (1, 10, 11, 16) for elem, _ in inputs.values())
        for high in (2, 1) if whole else (1,):
            yield Size(inputs, {str(n): length for n, length in bound.items()}, high)


def _inputs(labels: Labels, elems: Mapping[str, int], bound: Mapping[Any, int]) -> dict[str, tuple[int, list[int]]]:
    return {
        name: (elems[name], [bound[n] if isinstance(n, str) else n for n in lengths])
        for name, lengths in labels.items()
    }


# Around an example


def around(labels: Labels, elems: Mapping[str, int], example: Mapping[str, Any], least: int = 1) -> list[list[Size]]:
    """Return groups of sizes: the example's size, sizes with other even lengths, and sizes with prime lengths.

    least    the smallest batch; a training model may need several images to compute statistics
    """
    own = {
        str(n): array.shape[axis]
        for name, array in example.items()
        for axis, n in enumerate(labels[name])
        if isinstance(n, str)
    }
    shapes = {name: (elems[name], list(array.shape)) for name, array in example.items()}
    groups = [[Size(shapes, own, example=example, exact=True)]]
    leading = {n for n in own if all(axis == 0 for ls in labels.values() for axis, m in enumerate(ls) if m == n)}
    most = max(1 << 22, *(2 * array.size for array in example.values()))
    for even in (True, False) if own else ():
        group: list[Size] = []
        for batches, way in _near(even, least):
            bound, seen = {}, 0
            for n, length in own.items():
                if n in leading:
                    bound[n] = next(m for m in batches if m != length)
                else:
                    bound[n], seen = way(length, seen), seen + 1
            inputs = _inputs(labels, elems, bound)
            fits = min(bound.values()) > 0 and all(math.prod(shape) <= most for _, shape in inputs.values())
            if fits and all(bound[n] != own[n] for n in own) and bound not in [size.bound for size in group]:
                group.append(Size(inputs, bound, example=example))
        groups.append(group)
    return groups


@dataclass(frozen=True)
class Way:
    """Computes a length to try instead of n for free axis i: n * times // over + more * (i + 1), or a prime number."""

    more: int = 0
    times: int = 1
    over: int = 1
    prime: bool = False

    def __call__(self, n: int, i: int) -> int:
        """Return the length to try."""
        length = n * self.times // self.over
        return _prime(length + self.more + 16 * i) if self.prime else length + self.more * (i + 1)


MULTIPLES = (*map(Way, (32, 16, 8, 64, 4, 2)), Way(times=2), Way(times=3), Way(over=2), Way(-1))
PRIMES = (Way(times=3, over=4, prime=True), Way(11, prime=True), Way(1, prime=True), *map(Way, (48, 128, 12, 6, 3, 1)),
          Way(times=4), Way(times=3), Way(-2), Way(over=4))  # fmt: skip


def _near(even: bool, least: int) -> Iterator[tuple[tuple[int, ...], Way]]:
    """Yield pairs (batch sizes, Way) in the order in which we try them; most models accept the first pair.

    From the batch sizes, `around` takes the first that differs from the example's batch size. The Way computes the
    other lengths.
    """
    batches = tuple(n for n in ((1, 2, 4, 8) if even else (3, 5, 7)) if n >= least)
    for start in range(len(batches) - 1):
        for way in MULTIPLES if even else PRIMES:
            yield batches[start:], way


def _prime(least: int) -> int:
    least = max(least, 2)
    while any(least % divisor == 0 for divisor in range(2, math.isqrt(least) + 1)):
        least += 1
    return least
