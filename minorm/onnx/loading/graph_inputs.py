"""An input of a loaded graph: what the file declares, and whether a given Tensor is that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.support.argument_errors import conversion, is_foreign, kind_of
from minorm.support.masking import printable
from minorm.tensor.tensor import Tensor


@dataclass
class Input:
    """An input of the graph, as the file declares it. A length is an int, or a name for one that is free."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | str, ...] | None  # None: of any rank

    def __str__(self) -> str:
        shape = "of any rank" if self.shape is None else f"({', '.join(map(str, self.shape))})"
        return printable(f"{self.name} {self.dtype} {shape}")

    def check(self, given: Any, converted_to: Any = None) -> Tensor:
        """`given` as a Tensor; raise where it is not what the file declares, in the type it was converted to."""
        if not isinstance(given, (Tensor, np.ndarray)):
            fix = f"; {conversion('x', given)}" if is_foreign(given) else ""
            raise TypeError(f"input {self.name!r} is {kind_of(given)}; expected a Tensor{fix}")
        x = given if isinstance(given, Tensor) else Tensor(given)
        wanted = converted_to if converted_to is not None and dtypes.is_float(self.dtype) else self.dtype
        if x.dtype != wanted:
            graph = f"the graph {'declares' if wanted == self.dtype else 'was converted to'} {wanted}"
            raise TypeError(f"input {self.name!r} is {x.dtype}; {graph}; convert it: x.to(mn.{wanted})")
        if self.shape is not None and (why := self._misfit(x.shape)):
            declared = printable(", ".join(map(str, self.shape)))
            raise ValueError(f"input {self.name!r} has shape {x.shape}; the graph declares ({declared}): {why}")
        return x

    def _misfit(self, given: Sequence[int]) -> str:
        """Which axis is not as declared; "" if all are."""
        declared = self.shape or ()
        if len(declared) != len(given):
            return f"{len(declared)} axes, not {len(given)}"
        for axis, (n, m) in enumerate(zip(declared, given, strict=True)):
            if isinstance(n, int) and n != m:
                return f"axis {axis} has length {n}, not {m}"
        return ""
