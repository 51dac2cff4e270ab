"""Record the shape of each node's result, and its count of multiplications, while a loaded graph runs.

As in papers, we count only the multiplications of convolutions, matrix products and recurrent layers: each weight
counts once for each position at which it is used. Elementwise operations, pooling and normalizations do not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from minorm.onnx.graph import memory_budget
from minorm.tensor.tensor import Tensor

Shape = tuple[int, ...]


@dataclass
class Ran:
    """Holds the shape of a node's result in its last run, and the number of multiplications in all its runs."""

    shape: Shape | None  # None: not a tensor
    multiplications: int


Seen = Mapping[str, Ran]  # name of a node's output -> what was recorded for it


@contextmanager
def watched() -> Iterator[dict[str, Ran]]:
    """Return a context; inside the context, a dict collects a `Ran` for each result of a node."""
    seen: dict[str, Ran] = {}

    def see(step: Any, arguments: Sequence[Any], results: Sequence[Any], worked: int) -> None:
        count = _count(step.operator, arguments, results, worked)
        for name, result in zip(step.names, results, strict=False):
            if name:
                shape = tuple(result.shape) if isinstance(result, Tensor) else None
                before = seen.get(name)
                seen[name] = Ran(shape, count + (before.multiplications if before else 0))
                count = 0  # counts once for the node

    with memory_budget.watching(see):
        yield seen


def _count(operator: str, arguments: Sequence[Any], results: Sequence[Any], worked: int) -> int:
    shapes = [tuple(x.shape) if isinstance(x, Tensor) else () for x in arguments]
    rule = _RULES.get(operator)
    if rule is not None:
        return rule(shapes, next((tuple(y.shape) for y in results if isinstance(y, Tensor)), ()))
    return worked if operator == "Einsum" else 0


def _conv(shapes: Sequence[Shape], y: Shape) -> int:
    return math.prod(y) * math.prod(shapes[1][1:])


def _conv_transpose(shapes: Sequence[Shape], y: Shape) -> int:
    return math.prod(shapes[0]) * math.prod(shapes[1][1:])


def _matmul(shapes: Sequence[Shape], y: Shape) -> int:
    return math.prod(y) * math.prod(shapes[0][-1:])


def _gemm(shapes: Sequence[Shape], y: Shape) -> int:
    return math.prod(shapes[0]) * y[1]


def _recurrent(shapes: Sequence[Shape], y: Shape) -> int:
    x, weight, state = shapes[:3]
    return math.prod(x[:2]) * (math.prod(weight) + math.prod(state))


_RULES: dict[str, Callable[[Sequence[Shape], Shape], int]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MatMul": _matmul,
    "Gemm": _gemm,
    **dict.fromkeys(("RNN", "GRU", "LSTM"), _recurrent),
}
