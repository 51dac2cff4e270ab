"""MaxUnpool: put the maxima back at the places where MaxPool found them, and 0 at all other places."""

from __future__ import annotations

import math
from collections.abc import Callable

from minorm.functional.scatter import scatter
from minorm.onnx.graph.reading import Node, integers
from minorm.onnx.graph.registry import reads
from minorm.tensor.combining import pad
from minorm.tensor.tensor import Tensor


@reads("MaxUnpool", since=9, fixed=(1, 2))
def read_max_unpool(node: Node) -> Callable[..., Tensor]:
    """Put each maximum at its index in the image before pooling; an output_shape extends or cuts the result."""
    kernel = node["kernel_shape"]

    def unpool(x: Tensor, places: Tensor, output_shape: Tensor | None = None) -> Tensor:
        rank = x.ndim - 2
        strides, pads = node["strides"] or [1] * rank, node["pads"] or [0] * (2 * rank)
        if rank < 1 or len(kernel) != rank or len(strides) != rank or len(pads) != 2 * rank or places.shape != x.shape:
            raise ValueError(
                f"x has shape {x.shape}, I {places.shape}; kernel_shape is {kernel}, strides {strides}, pads {pads}; "
                "expected equal shapes (N, C, ...) for x and I, and one number of kernel_shape and strides and two "
                "pads for each axis after C"
            )
        lengths = [
            (n - 1) * s - low - high + k
            for n, s, low, high, k in zip(x.shape[2:], strides, pads[:rank], pads[rank:], kernel, strict=True)
        ]
        if min(lengths) < 0:
            raise ValueError(f"the result would have lengths {lengths}; expected at least 0")
        shape = (*x.shape[:2], *lengths)
        node.fits(shape, x.dtype)
        y = scatter(x.new_zeros((math.prod(shape),)), 0, places.reshape(-1), x.reshape(-1)).reshape(shape)
        if output_shape is None:
            return y
        wanted = integers(output_shape, "output_shape")
        if len(wanted) != x.ndim or min(wanted) < 0:
            raise ValueError(f"output_shape is {wanted}; expected {x.ndim} lengths of at least 0")
        node.fits(wanted, x.dtype)
        y = y[tuple(slice(n) for n in wanted)]
        missing = [n - m for n, m in zip(wanted, y.shape, strict=True)]
        return pad(y, [amount for n in reversed(missing) for amount in (0, n)]) if any(missing) else y

    return unpool
