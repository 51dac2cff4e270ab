"""The epilogue of a convolution: it normalizes the sums and clamps them before they are stored.

    y = clamp(((sum - k) - d) * factor + offset)        factor = rstd * s, offset = b

One table has COLUMNS numbers for each channel, so that a kernel needs only one pointer. `applied` computes the same
formula on stored results. The kernels and `applied` give the same bits as separate operations: BatchNorm in evaluation,
then Relu or Clip. If a step of the formula is not wanted, the table has numbers with which this step changes nothing,
not even NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.kernels.protocol import Statistics

Array = Any
COLUMNS = 7  # k, d, factor, offset, below, low, high: numbers < below become low, numbers > high become high


def epilogue(
    channels: int,
    dtype: Any,
    stats: Statistics | None = None,
    s: Array | None = None,
    b: Array | None = None,
    low: float | None = None,
    high: float | None = None,
) -> Array:
    """Return the table (channels, COLUMNS) in the type of the sums; s, b and stats have one number for each channel."""
    table = np.zeros_like(np.empty(0) if stats is None else stats.block, dtype, shape=(channels, COLUMNS))
    table[:, 2], table[:, 3], table[:, 4:6], table[:, 6] = 1, -0.0, -np.inf, np.inf
    if stats is not None:
        table[:, 0], table[:, 1], table[:, 2] = stats.k, stats.d, stats.rstd
    if s is not None:
        table[:, 2] *= s.reshape(-1).astype(dtype, copy=False)
    if b is not None:
        table[:, 3] = b.reshape(-1)
    if low is not None:
        table[:, 4:6] = low
        if high is None:  # Relu turns -0 into 0; Relu6 and Clip, with both bounds, keep -0
            table[:, 4] = np.nextafter(table[:, 4], table.dtype.type(np.inf))
    if high is not None:
        table[:, 6] = high
    return table


def applied(y: Array, table: Array) -> Array:
    """Apply the epilogue to stored results (N, channels, *spatial); 16-bit floats are rounded once more."""
    shape = (1, len(table), *[1] * (y.ndim - 2))
    k, d, factor, offset, below, low, high = (column.reshape(shape) for column in table.T)
    v = ((y.astype(table.dtype, copy=False) - k) - d) * factor + offset
    v = np.where(v < below, low, v)
    return np.where(v > high, high, v).astype(y.dtype, copy=False)


def check_epilogue(operation: str, table: Array | None, channels: int, dtype: Any) -> None:
    """Raise ValueError unless the table is None, or has the type `dtype` and one row for each channel."""
    if table is not None and (table.shape != (channels, COLUMNS) or table.dtype != dtype):
        raise ValueError(
            f"{operation}: epilogue has shape {table.shape} and dtype {table.dtype}; expected ({channels}, {COLUMNS}) "
            f"and {np.dtype(dtype)}"
        )
