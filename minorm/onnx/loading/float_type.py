"""Knows the float type that a loaded graph computes in: that of its file, or the one that `to` gave it since.

`to` may be called on a module around the graph, so its tensors tell. One of each float type that the file has is
watched, because a file may hold several, float16 weights beside float32 ones: `to(mn.float32)` changes some of them.
Where no weight is of a type that an input has, a tensor is made for the purpose and converted with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.tensor.tensor import Tensor


class FloatType:
    """Watches one tensor of each float type of the file, to see what `to` makes of it.

    held        parameters and buffers
    inputs      the types that the file declares of its inputs
    constants   the types of its other tensors; they count where all others are integers
    """

    def __init__(self, held: Iterable[Tensor], inputs: Iterable[Any], constants: Iterable[Any] = ()) -> None:
        self._watched: dict[Any, Tensor] = {}  # by the type in the file
        self._made: list[Tensor] = []
        for tensor in held:
            if dtypes.is_float(tensor.dtype):
                self._watched.setdefault(tensor.dtype, tensor)
        self._add(inputs)
        if not self._watched:
            self._add([*constants, dtypes.float32][:1])

    def _add(self, kinds: Iterable[Any]) -> None:
        for dtype in kinds:
            if dtypes.is_float(dtype) and dtype not in self._watched:
                self._watched[dtype] = Tensor(np.zeros((), dtype))
                self._made.append(self._watched[dtype])

    def converted_to(self) -> Any:
        """The type that `to` gave the floats; None where they have those of the file."""
        return next((tensor.dtype for before, tensor in self._watched.items() if tensor.dtype != before), None)

    def apply(self, fn: Callable[[Tensor], Tensor]) -> None:
        """As Module._apply, for the tensors that no module holds."""
        for tensor in self._made:
            tensor.set_array(fn(tensor).array)

    def told_by(self, held: Iterable[Tensor], inputs: Iterable[Any]) -> FloatType:
        """The same, once other parameters are in the graph."""
        new = FloatType(held, inputs)
        now = self.converted_to()
        if now is not None:
            before = next(kind for kind, tensor in self._watched.items() if tensor.dtype != kind)
            watched = next((tensor for tensor in new._watched.values() if tensor.dtype == now), None)
            if watched is None:  # no other tensor of the graph is of this type now
                watched = Tensor(np.zeros((), now))
                new._made.append(watched)
            new._watched = {before: watched}
        return new
