"""Compute with lengths of free axes: a Size holds the length that an axis had in each run of the model.

A trace shows only numbers: an axis of length 64 may be 4 images times 16 rows, or just 64. So the model runs several
times. In each further run, one free axis, such as the batch, has another length. For every axis, a tuple holds the
lengths in all runs:

    batch 4, then 6:      (4, 6)  is `batch`       (64, 96)  is `16*batch`       64  is fixed, a plain int

Sizes add, multiply and divide element by element, so a rule computes with lengths as if they were ints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from minorm.onnx.graph.errors import RuleNotApplicable


@dataclass(frozen=True)
class Size:
    """A length that differs between the runs: `values[r]` is its value in run r."""

    values: tuple[int, ...]

    def _with(self, other: Length, operation: Callable[[int, int], int]) -> Length:
        others = other.values if isinstance(other, Size) else (other,) * len(self.values)
        return size_of([operation(a, b) for a, b in zip(self.values, others, strict=True)])

    def __add__(self, other: Length) -> Length:
        return self._with(other, lambda a, b: a + b)

    def __sub__(self, other: Length) -> Length:
        return self._with(other, lambda a, b: a - b)

    def __mul__(self, other: Length) -> Length:
        return self._with(other, lambda a, b: a * b)

    def __floordiv__(self, other: Length) -> Length:
        return self._with(other, lambda a, b: a // b)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: Length) -> Length:
        return self._with(other, lambda a, b: b - a)

    def __rfloordiv__(self, other: Length) -> Length:
        return self._with(other, lambda a, b: b // a)

    def __index__(self) -> int:
        seen = " or ".join(map(str, dict.fromkeys(self.values)))
        raise RuleNotApplicable(f"needs a fixed length, but here the length depends on a free axis: it is {seen}", self)


Length = int | Size
Shape = tuple[Length, ...]


def size_of(values: Sequence[int]) -> Length:
    """Return a plain int if the length is the same in all runs; else return the Size."""
    return int(values[0]) if len(set(values)) == 1 else Size(tuple(int(v) for v in values))


def product(lengths: Iterable[Length]) -> Length:
    """Return the product of these lengths: the number of elements."""
    return math.prod(lengths, start=1)


def broadcast(*shapes: Shape) -> Shape:
    """Broadcast shapes as NumPy does: they are aligned at the last axis, and a length of 1 stretches."""
    rank = max(map(len, shapes))
    result = []
    for lengths in zip(*[(1,) * (rank - len(s)) + tuple(s) for s in shapes], strict=True):
        wide = {n for n in lengths if n != 1}
        if len(wide) > 1:
            raise ValueError(f"shapes {shapes} do not broadcast")
        result.append(wide.pop() if wide else 1)
    return tuple(result)


@dataclass(frozen=True)
class Formula:
    """A formula for a Size: constant + the sum of factor[name] * name, or factor * the product of free axes."""

    constant: int = 0
    terms: tuple[tuple[int, tuple[str, ...]], ...] = ()

    def of(self, lengths: Mapping[str, int]) -> int:
        """Return the value of the formula if the free axes have these lengths."""
        return self.constant + sum(factor * math.prod(lengths[n] for n in names) for factor, names in self.terms)

    def __str__(self) -> str:
        parts = ["*".join(([str(factor)] if factor != 1 else []) + list(names)) for factor, names in self.terms]
        return "+".join(parts + ([str(self.constant)] if self.constant else [])).replace("+-", "-")


@dataclass
class Symbols:
    """The free axes. Axis `names[i]` had length `base[i]` in most runs; for each length in `others[i]`, one more run
    was made.
    """

    names: tuple[str, ...] = ()
    base: tuple[int, ...] = ()
    others: tuple[tuple[int, ...], ...] = ()
    _fresh: dict[Size, str] = field(default_factory=dict)

    @property
    def runs(self) -> list[tuple[int, int]]:
        """List, for every run but the first, the free axis whose length changed, and the changed length."""
        return [(i, n) for i, lengths in enumerate(self.others) for n in lengths]

    def size(self, index: int) -> Length:
        """Return the length of the free axis number `index`."""
        return size_of([self.base[index], *(n if i == index else self.base[index] for i, n in self.runs)])

    def followed(self, size: Size) -> list[int]:
        """Return the free axes on which a length depends."""
        moved = (i for (i, _), value in zip(self.runs, size.values[1:], strict=True) if value != size.values[0])
        return sorted(set(moved))

    def formula(self, size: Size) -> Formula | None:
        """Return `size` as a Formula of the free axes; None if no Formula fits, for example after a stride."""
        first, moved = size.values[0], self.followed(size)
        seen = [(i, n, value) for (i, n), value in zip(self.runs, size.values[1:], strict=True) if i in moved]
        divisor = math.prod(self.base[i] for i in moved)
        proportional = all(value * self.base[i] == first * n for i, n, value in seen)
        if proportional and divisor and first % divisor == 0:
            return Formula(0, ((first // divisor, tuple(self.names[i] for i in moved)),))
        if len(moved) > 1:
            return None
        factors = {divmod(value - first, n - self.base[i]) for i, n, value in seen}
        factor, remainder = factors.pop()
        if remainder or factors:
            return None
        return Formula(first - factor * self.base[moved[0]], ((factor, (self.names[moved[0]],)),))

    def at(self, length: Length, lengths: Mapping[str, int]) -> int | None:
        """Return the value of `length` if the free axes have these lengths; None if `length` has no formula."""
        if not isinstance(length, Size):
            return length
        formula = self.formula(length)
        return None if formula is None else formula.of(lengths)

    def describe(self, length: Length) -> int | str:
        """Return a length as the file writes it: a number, or a name such as `batch` or `16*batch`."""
        if not isinstance(length, Size):
            return length
        formula = self.formula(length)
        if formula is not None:
            return str(formula)
        return self._fresh.setdefault(length, f"dim_{len(self._fresh)}")
