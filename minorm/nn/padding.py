"""Padding layers: elements around the last one, two or three axes. An int is the same on every side.

`padding` lists (before, after) from the last axis backwards; see `F.pad`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from minorm.functional.padding import pad
from minorm.functional.windows import ints
from minorm.nn.module import Module
from minorm.tensor import Tensor

Sides = int | Sequence[int]


class _Pad(Module):
    mode: ClassVar[str]
    rank: ClassVar[int]
    value: float = 0.0

    def __init__(self, padding: Sides) -> None:
        super().__init__()
        sides = tuple(padding) if not isinstance(padding, int) else padding
        self.padding = ints(type(self).__name__, "padding", sides, 2 * self.rank, least=-(1 << 62))

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, *lengths) or (C, *lengths)"""
        if self.mode != "constant" and input.ndim not in (self.rank + 1, self.rank + 2):
            raise ValueError(
                f"{type(self).__name__}: input has shape {input.shape}; expected {self.rank + 2} axes (N, C, ...), or "
                f"{self.rank + 1}"
            )
        return pad(input, self.padding, self.mode, self.value)

    def extra_repr(self) -> str:
        """The widths."""
        return str(self.padding)


class ConstantPad1d(_Pad):
    """`value` around the last axis; negative widths cut elements away."""

    mode, rank = "constant", 1

    def __init__(self, padding: Sides, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        """The widths and the value."""
        return f"padding={self.padding}, value={self.value}"


class ConstantPad2d(_Pad):
    """`value` around the last two axes; negative widths cut elements away."""

    mode, rank = "constant", 2

    def __init__(self, padding: Sides, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        """The widths and the value."""
        return f"padding={self.padding}, value={self.value}"


class ConstantPad3d(_Pad):
    """`value` around the last three axes; negative widths cut elements away."""

    mode, rank = "constant", 3

    def __init__(self, padding: Sides, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        """The widths and the value."""
        return f"padding={self.padding}, value={self.value}"


class ZeroPad1d(_Pad):
    """Zeros around the last axis."""

    mode, rank = "constant", 1


class ZeroPad2d(_Pad):
    """Zeros around the last two axes."""

    mode, rank = "constant", 2


class ZeroPad3d(_Pad):
    """Zeros around the last three axes."""

    mode, rank = "constant", 3


class ReflectionPad1d(_Pad):
    """The elements mirrored at the first and the last one, around the last axis."""

    mode, rank = "reflect", 1


class ReflectionPad2d(_Pad):
    """The elements mirrored at the first and the last one, around the last two axes."""

    mode, rank = "reflect", 2


class ReflectionPad3d(_Pad):
    """The elements mirrored at the first and the last one, around the last three axes."""

    mode, rank = "reflect", 3


class ReplicationPad1d(_Pad):
    """The outermost elements again, around the last axis."""

    mode, rank = "replicate", 1


class ReplicationPad2d(_Pad):
    """The outermost elements again, around the last two axes."""

    mode, rank = "replicate", 2


class ReplicationPad3d(_Pad):
    """The outermost elements again, around the last three axes."""

    mode, rank = "replicate", 3


class CircularPad1d(_Pad):
    """The elements of the other end, around the last axis."""

    mode, rank = "circular", 1


class CircularPad2d(_Pad):
    """The elements of the other end, around the last two axes."""

    mode, rank = "circular", 2


class CircularPad3d(_Pad):
    """The elements of the other end, around the last three axes."""

    mode, rank = "circular", 3
