"""Read operators on the bits of integers: BitwiseAnd, BitwiseOr, BitwiseXor, BitwiseNot, BitShift and BitCast."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minorm import devices
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import EVERY, Rule, reads
from minorm.onnx.operators.math.arithmetic import Binary, target_type
from minorm.onnx.operators.traced_as_one_call import whole
from minorm.ops.stepwise import Bitwise, Stepwise
from minorm.tensor.tensor import Tensor


def _reader(relation: str) -> Rule:
    def read(node: Node) -> Binary:
        def bitwise(a: Tensor, b: Tensor) -> Tensor:
            node.fits(np.broadcast_shapes(a.shape, b.shape), a.dtype)
            return Bitwise.apply(a, b, relation=relation)

        return bitwise

    return read


for _relation in ("and", "or", "xor"):
    reads(f"Bitwise{_relation.title()}", fixed=EVERY)(_reader(f"bitwise_{_relation}"))


@reads("BitwiseNot", since=18, fixed=EVERY)
def read_not(node: Node) -> Callable[[Tensor], Tensor]:
    return lambda x: Stepwise.apply(x, step="invert")


@reads("BitShift", since=11, fixed=EVERY)  # 28: signed integers too; a shift to the right keeps their sign
def read_shift(node: Node) -> Binary:
    direction = node["direction"]
    if direction not in ("LEFT", "RIGHT"):
        raise ValueError(f"direction is {direction!r}; expected LEFT or RIGHT")

    def shift(x: Tensor, count: Tensor) -> Tensor:
        node.fits(np.broadcast_shapes(x.shape, count.shape), x.dtype)
        a, b = x.array, count.array
        width = 8 * a.dtype.itemsize
        far = (b < 0) | (b >= width)  # all bits are shifted out
        near = np.where(far, 0, b).astype(a.dtype)
        if direction == "LEFT":
            return Tensor(np.where(far, 0, np.left_shift(a, near)).astype(a.dtype))
        return Tensor(np.where(far, np.where(a < 0, -1, 0), np.right_shift(a, near)).astype(a.dtype))

    return whole(node, shift)


@reads("BitCast", since=26, fixed=EVERY)
def read_bit_cast(node: Node) -> Callable[[Tensor], Tensor]:
    dtype = target_type(node)

    def cast(x: Tensor) -> Tensor:
        if x.dtype.itemsize != dtype.itemsize:
            raise ValueError(
                f"to is {dtype}, which takes {dtype.itemsize} bytes; x is {x.dtype}; expected a type of "
                f"{x.dtype.itemsize} bytes"
            )
        return Tensor(devices.copied(x.array).view(dtype))

    return whole(node, cast)
