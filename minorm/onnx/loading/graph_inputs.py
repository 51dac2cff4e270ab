"""Describe an input of a loaded graph as the file declares it, and check Tensors against the declaration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.onnx.graph.storage import narrow
from minorm.support.argument_errors import conversion, is_foreign, kind_of
from minorm.support.safe_names import printable
from minorm.tensor.tensor import Tensor


@dataclass
class Input:
    """Describes an input of the graph, as the file declares it. A length is an int, or the name of a free length.

    form        "tensor", or "sequence" for a list of Tensors of this type
    optional    True if None may be given
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str, ...] | None  # None: of any rank
    form: str = "tensor"
    optional: bool = False

    def __str__(self) -> str:
        return self.described()

    def described(self, converted_to: Any = None) -> str:
        """Return the name, the type and the shape as text; `converted_to` is the float type of a converted graph."""
        shape = "of any rank" if self.shape is None else f"({', '.join(map(str, self.shape))})"
        several = "sequence of " if self.form == "sequence" else ""
        dtype = self._wanted(converted_to)
        return printable(f"{self.name} {'optional ' if self.optional else ''}{several}{dtype} {shape}")

    def _wanted(self, converted_to: Any) -> Any:
        return self.dtype if converted_to is None or not dtypes.is_float(self.dtype) else converted_to

    def check(self, given: Any, converted_to: Any = None) -> Any:
        """Return `given` as a Tensor, or a list of Tensors; raise an error if `given` does not fit the declaration.

        converted_to    the float type of a converted graph
        """
        if given is None and self.optional:
            return None
        if self.form == "sequence":
            if not isinstance(given, (list, tuple)):
                raise TypeError(f"input {self.name!r} is {kind_of(given)}; expected a list of Tensors")
            return [self._tensor(x, converted_to) for x in given]
        return self._tensor(given, converted_to)

    def _tensor(self, given: Any, converted_to: Any) -> Tensor:
        if not isinstance(given, (Tensor, np.ndarray)):
            fix = f"; {conversion('x', given)}" if is_foreign(given) else ""
            raise TypeError(f"input {self.name!r} is {kind_of(given)}; expected a Tensor{fix}")
        x = given if isinstance(given, Tensor) else narrow.tensor(given)
        wanted = self._wanted(converted_to)
        if x.dtype != wanted:
            graph = f"the graph {'declares' if wanted == self.dtype else 'was converted to'} {wanted}"
            raise TypeError(f"input {self.name!r} is {x.dtype}; {graph}; convert it: x.to(mn.{wanted})")
        if self.shape is not None and (why := self._misfit(x.shape)):
            declared = printable(", ".join(map(str, self.shape)))
            raise ValueError(f"input {self.name!r} has shape {x.shape}; the graph declares ({declared}): {why}")
        return x

    def _misfit(self, given: Sequence[int]) -> str:
        """Describe the first axis that differs from the declared shape; "" if all axes agree."""
        declared = self.shape or ()
        if len(declared) != len(given):
            return f"{len(declared)} axes, not {len(given)}"
        for axis, (n, m) in enumerate(zip(declared, given, strict=True)):
            if isinstance(n, int) and n != m:
                return f"axis {axis} has length {n}, not {m}"
        return ""
