"""Padding layers add elements at both ends of the last one, two or three axes. If `padding` is an int, all sides get
this width.

Otherwise `padding` lists (before, after) for each axis, from the last axis backwards; see `F.pad`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from minorm.functional.padding import pad
from minorm.functional.windows import ints
from minorm.nn.by_rank import OfRank
from minorm.tensor.tensor import Tensor

Sides = int | Sequence[int]
ARGUMENTS = {
    "padding": (
        "the number of elements to add: one int for all sides, or the ints before and after each padded axis, the last "
        "axis first. A negative number cuts elements away"
    ),
}


class _Pad(OfRank):
    """x is (N, {form}), or one sample ({form}). Along each padded axis, y is longer than x by the sum of the two
    widths.

    Example:
        >>> x = mn.tensor([1.0, 2.0, 3.0]).expand(1, {kernel})
        >>> y = nn.{name}({given})(x)
        >>> y.flatten(0, -2)[{row}]  # a row in the middle
        tensor({shown})

    {onnx}
    """

    arguments = ARGUMENTS
    mode: ClassVar[str]
    value: float = 0.0
    padding: Any

    def __init_subclass__(cls, rank: int = 0, **words: str) -> None:
        super().__init_subclass__(rank, row=str(5**rank // 10), **words)

    def __init__(self, padding: Sides) -> None:
        super().__init__()
        self.padding = padding

    def _as_setting(self, name: str, value: Any) -> Any:
        if name != "padding":
            return value
        sides = value if isinstance(value, int) else tuple(value)
        return ints(type(self).__name__, "padding", sides, 2 * self._rank, least=-(1 << 62))

    def forward(self, input: Tensor) -> Tensor:
        """Pad input (N, C, *lengths) or (C, *lengths)."""
        if self.mode != "constant" and input.ndim not in (self._rank + 1, self._rank + 2):
            raise ValueError(
                f"{type(self).__name__}: input has shape {input.shape}; expected {self._rank + 2} axes (N, C, ...), or "
                f"{self._rank + 1}"
            )
        return pad(input, self.padding, self.mode, self.value)

    def extra_repr(self) -> str:
        """Return the widths of the padding as text for `repr`."""
        return str(self.padding)


class _Constant(_Pad, given="1, 7.0", shown="[7., 1., 2., 3., 7.]", onnx="Written to ONNX as Pad (opset 25)."):
    mode, arguments = "constant", ARGUMENTS | {"value": "the value of the new elements"}

    def __init__(self, padding: Sides, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def extra_repr(self) -> str:
        """Return the widths of the padding and the value as text for `repr`."""
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_Constant, rank=1):
    """y = x with `value` added at both ends of the last axis."""


class ConstantPad2d(_Constant, rank=2):
    """y = x with `value` added at both ends of the last two axes."""


class ConstantPad3d(_Constant, rank=3):
    """y = x with `value` added at both ends of the last three axes."""


class _Zero(_Pad, given="1", shown="[0., 1., 2., 3., 0.]", onnx="Written to ONNX as Pad (opset 25)."):
    mode = "constant"


class ZeroPad1d(_Zero, rank=1):
    """y = x with zeros added at both ends of the last axis."""


class ZeroPad2d(_Zero, rank=2):
    """y = x with zeros added at both ends of the last two axes."""


class ZeroPad3d(_Zero, rank=3):
    """y = x with zeros added at both ends of the last three axes."""


class _Reflection(_Pad, given="1", shown="[2., 1., 2., 3., 2.]", onnx="Written to ONNX as Gather (opset 13)."):
    mode = "reflect"


class ReflectionPad1d(_Reflection, rank=1):
    """y = x extended at both ends of the last axis by the mirror image of x."""


class ReflectionPad2d(_Reflection, rank=2):
    """y = x extended at both ends of the last two axes by the mirror image of x."""


class ReflectionPad3d(_Reflection, rank=3):
    """y = x extended at both ends of the last three axes by the mirror image of x."""


class _Replication(_Pad, given="1", shown="[1., 1., 2., 3., 3.]", onnx="Written to ONNX as Gather (opset 13)."):
    mode = "replicate"


class ReplicationPad1d(_Replication, rank=1):
    """y = x extended at both ends of the last axis by copies of the outermost elements."""


class ReplicationPad2d(_Replication, rank=2):
    """y = x extended at both ends of the last two axes by copies of the outermost elements."""


class ReplicationPad3d(_Replication, rank=3):
    """y = x extended at both ends of the last three axes by copies of the outermost elements."""


class _Circular(_Pad, given="1", shown="[3., 1., 2., 3., 1.]", onnx="Written to ONNX as Gather (opset 13)."):
    mode = "circular"


class CircularPad1d(_Circular, rank=1):
    """y = x continued periodically at both ends of the last axis."""


class CircularPad2d(_Circular, rank=2):
    """y = x continued periodically at both ends of the last two axes."""


class CircularPad3d(_Circular, rank=3):
    """y = x continued periodically at both ends of the last three axes."""
