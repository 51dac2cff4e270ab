"""Checks that indices are inside x, and converts a list of indices and masks to indices for each axis."""

from __future__ import annotations

from typing import Any

from minorm import devices
from minorm.devices import dtypes
from minorm.support.argument_errors import kind_of


def inside(operation: str, index: Any, n: int, x: Any, error: type[Exception] = ValueError) -> None:
    """Raise an error unless every index is from -n to n - 1. Indices on a GPU are not checked."""
    if not devices.is_host(index):  # the host would have to wait
        return
    outside = (index < -n) | (index >= n)
    if outside.any():
        raise error(
            f"{operation}: index holds {int(index[outside][0])}; expected {-n} to {n - 1}; x has shape {x.shape}"
        )


def places_of(operation: str, x: Any, indices: Any) -> dict[int, Any]:
    """Return a dict from axes to indices along these axes. A mask gives indices for all of its axes."""
    if not isinstance(indices, (tuple, list)):
        raise TypeError(f"{operation}: indices is {kind_of(indices)}; expected a tuple with a Tensor for each axis")
    places: dict[int, Any] = {}
    axis = 0
    for given in indices:
        if given is not None and not hasattr(given, "from_array"):
            raise TypeError(f"{operation}: an index is {kind_of(given)}; expected a Tensor, or None for a whole axis")
        part = given if given is None or given.dtype != dtypes.uint8 else given != 0
        ndim = part.ndim if part is not None and part.dtype == dtypes.bool else 1
        if axis + ndim > x.ndim:
            raise IndexError(
                f"{operation}: indices are for {axis + ndim} axes or more; expected indices for at most {x.ndim} "
                f"axes, because x has no more; x.shape is {x.shape}"
            )
        if part is not None and part.dtype == dtypes.bool:
            if not ndim or part.shape != x.shape[axis : axis + ndim]:
                raise IndexError(
                    f"{operation}: a mask has shape {part.shape}; expected the lengths of x along the axes from "
                    f"{axis} on; x.shape is {x.shape}"
                )
            places |= dict(enumerate(part.nonzero(as_tuple=True), axis))
        elif part is not None:
            if part.dtype.kind not in "iu":
                raise TypeError(f"{operation}: an index is {part.dtype}; expected integers or bools")
            inside(operation, part.array, x.shape[axis], x, IndexError)
            places[axis] = part
        axis += ndim
    return places


def expanded(operation: str, values: Any, shape: tuple[int, ...], x: Any) -> Any:
    """Return values expanded to the shape of x[indices]."""
    try:
        return values.expand(shape)
    except ValueError:
        raise ValueError(
            f"{operation}: values has shape {values.shape}, x[indices] has shape {shape}; expected values that "
            f"broadcast to x[indices]; x.shape is {x.shape}"
        ) from None
