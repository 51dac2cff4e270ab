"""Find the float type in which a loaded graph computes: the type of the file, or the type of a later `to`.

A user may call `to` on a module around the graph, so we ask the graph's tensors. We watch one tensor of each float type
in the file, because a file may hold several types (say, float16 weights beside float32 ones), and `to(mn.float32)`
changes only some of these. If an input has a type that no weight has, we make a tensor of this type, and `to` also
converts this tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.tensor.tensor import Tensor


class FloatType:
    """Watches one tensor of each float type of the file, in order to see how `to` converts this type.

    held        parameters and buffers
    inputs      the types that the file declares of its inputs
    constants   the types of the file's other tensors; they count if all parameters, buffers and inputs are integers
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
        """Return the type that `to` gave the floats; None if they still have the types of the file."""
        return next((tensor.dtype for before, tensor in self._watched.items() if tensor.dtype != before), None)

    def apply(self, fn: Callable[[Tensor], Tensor]) -> None:
        """Apply `fn` to the tensors that no module holds; Module._apply converts the other tensors."""
        for tensor in self._made:
            tensor.set_array(fn(tensor).array)

    def with_parameters(self, held: Iterable[Tensor], inputs: Iterable[Any]) -> FloatType:
        """Return a FloatType for a graph with other parameters that has been converted to the same type."""
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
