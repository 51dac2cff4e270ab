"""Padding layers: elements around the last one, two or three axes. An int is the same on every side.

`padding` lists (before, after) from the last axis backwards; see `F.pad`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from minorm.functional.argument_texts import AXES
from minorm.functional.padding import pad
from minorm.functional.windows import ints
from minorm.nn.module import Module
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

Sides = int | Sequence[int]
ARGUMENTS = {
    "padding": (
        "how many elements are put on every side; or (before, after) for the last axis, then for the one before it and "
        "so on. A negative number cuts elements away"
    ),
}


def _described(rank: int, given: str, shown: str, onnx: str, **own: str) -> Callable[[type[_Pad]], type[_Pad]]:
    """The docstring of a layer that is made as `name(given)`; `shown` is what it makes of 1, 2, 3."""
    words = {"given": given, "shown": shown, "onnx": onnx, "lengths": ", 3" * rank, "row": str(5 ** (rank - 1) // 2)}
    return documented(ARGUMENTS, base=_Pad, words={**AXES[rank], **words}, **own)


class _Pad(Module):
    """x is (N, {form}), or one sample ({form}); each length of y is that of x plus before and after.

    Example:
        >>> x = mn.tensor([1.0, 2.0, 3.0]).expand(1{lengths})
        >>> y = nn.{name}({given})(x)
        >>> y.flatten(0, -2)[{row}]  # a row in the middle
        tensor({shown})

    {onnx}
    """

    mode: ClassVar[str]
    rank: ClassVar[int]
    value: float = 0.0
    padding: Any

    def __init__(self, padding: Sides) -> None:
        super().__init__()
        self.padding = padding

    def _as_setting(self, name: str, value: Any) -> Any:
        if name != "padding":
            return value
        sides = value if isinstance(value, int) else tuple(value)
        return ints(type(self).__name__, "padding", sides, 2 * self.rank, least=-(1 << 62))

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


@_described(1, "1, 7.0", "[7., 1., 2., 3., 7.]", "ONNX Pad 25.", value="what is put there")
class ConstantPad1d(_Pad):
    """y = x with `value` around the last axis."""

    mode, rank = "constant", 1

    def __init__(self, padding: Sides, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        """The widths and the value."""
        return f"padding={self.padding}, value={self.value}"


@_described(2, "1, 7.0", "[7., 1., 2., 3., 7.]", "ONNX Pad 25.", value="what is put there")
class ConstantPad2d(_Pad):
    """y = x with `value` around the last two axes."""

    mode, rank = "constant", 2

    def __init__(self, padding: Sides, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        """The widths and the value."""
        return f"padding={self.padding}, value={self.value}"


@_described(3, "1, 7.0", "[7., 1., 2., 3., 7.]", "ONNX Pad 25.", value="what is put there")
class ConstantPad3d(_Pad):
    """y = x with `value` around the last three axes."""

    mode, rank = "constant", 3

    def __init__(self, padding: Sides, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        """The widths and the value."""
        return f"padding={self.padding}, value={self.value}"


@_described(1, "1", "[0., 1., 2., 3., 0.]", "ONNX Pad 25.")
class ZeroPad1d(_Pad):
    """y = x with zeros around the last axis."""

    mode, rank = "constant", 1


@_described(2, "1", "[0., 1., 2., 3., 0.]", "ONNX Pad 25.")
class ZeroPad2d(_Pad):
    """y = x with zeros around the last two axes."""

    mode, rank = "constant", 2


@_described(3, "1", "[0., 1., 2., 3., 0.]", "ONNX Pad 25.")
class ZeroPad3d(_Pad):
    """y = x with zeros around the last three axes."""

    mode, rank = "constant", 3


@_described(1, "1", "[2., 1., 2., 3., 2.]", "ONNX Gather 13.")
class ReflectionPad1d(_Pad):
    """y = x with its elements mirrored at the first and the last one, around the last axis."""

    mode, rank = "reflect", 1


@_described(2, "1", "[2., 1., 2., 3., 2.]", "ONNX Gather 13.")
class ReflectionPad2d(_Pad):
    """y = x with its elements mirrored at the first and the last one, around the last two axes."""

    mode, rank = "reflect", 2


@_described(3, "1", "[2., 1., 2., 3., 2.]", "ONNX Gather 13.")
class ReflectionPad3d(_Pad):
    """y = x with its elements mirrored at the first and the last one, around the last three axes."""

    mode, rank = "reflect", 3


@_described(1, "1", "[1., 1., 2., 3., 3.]", "ONNX Gather 13.")
class ReplicationPad1d(_Pad):
    """y = x with its outermost elements again, around the last axis."""

    mode, rank = "replicate", 1


@_described(2, "1", "[1., 1., 2., 3., 3.]", "ONNX Gather 13.")
class ReplicationPad2d(_Pad):
    """y = x with its outermost elements again, around the last two axes."""

    mode, rank = "replicate", 2


@_described(3, "1", "[1., 1., 2., 3., 3.]", "ONNX Gather 13.")
class ReplicationPad3d(_Pad):
    """y = x with its outermost elements again, around the last three axes."""

    mode, rank = "replicate", 3


@_described(1, "1", "[3., 1., 2., 3., 1.]", "ONNX Gather 13.")
class CircularPad1d(_Pad):
    """y = x as if it went on from its beginning, around the last axis."""

    mode, rank = "circular", 1


@_described(2, "1", "[3., 1., 2., 3., 1.]", "ONNX Gather 13.")
class CircularPad2d(_Pad):
    """y = x as if it went on from its beginning, around the last two axes."""

    mode, rank = "circular", 2


@_described(3, "1", "[3., 1., 2., 3., 1.]", "ONNX Gather 13.")
class CircularPad3d(_Pad):
    """y = x as if it went on from its beginning, around the last three axes."""

    mode, rank = "circular", 3
