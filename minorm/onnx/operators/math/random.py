"""Read and write RandomNormal, RandomUniform, RandomNormalLike, RandomUniformLike, Bernoulli and Multinomial.

Draws come from minorm's generator, so `minorm.manual_seed` repeats them. A node with a `seed` has a separate generator.
It starts from the seed when the file is loaded. So after a second `load`, the node draws the same numbers again, run by
run. ONNX does not define the numbers for a seed, so other runtimes draw other numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.functional import random as F
from minorm.onnx.graph.errors import RuleNotApplicable, Unsupported
from minorm.onnx.graph.model_graph import ELEMENT_TYPES, Graph, Value
from minorm.onnx.graph.node_layers import Layer
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import EVERY, reads, writes
from minorm.onnx.graph.sizes import Shape, Size
from minorm.onnx.graph.tensors import DTYPES
from minorm.tensor.tensor import Tensor

NUMBERS = {"Normal": ("mean", "scale"), "Uniform": ("low", "high")}


class Seeded(np.random.Generator):
    """The random generator of a node with a seed, which is a float32 in the file."""

    def __init__(self, seed: float) -> None:
        super().__init__(np.random.PCG64(int(np.float32(seed).view(np.uint32))))
        self.seed = seed


class Random(Layer):
    """A node that draws random numbers; it is a Module so that `load` does not compute it as a constant."""

    def __init__(self, node: Node, draw: Callable[..., Tensor]) -> None:
        super().__init__()
        self.draw = draw
        self.generator = None if node["seed"] is None else Seeded(node["seed"])

    def forward(self, *inputs: Tensor) -> Tensor:
        """Draw new numbers."""
        return self.draw(*inputs, generator=self.generator)


@reads("RandomNormal", since=1, fixed=EVERY)
@reads("RandomUniform", since=1, fixed=EVERY)
def read_drawn(node: Node) -> Random:
    kind = node.operator.removeprefix("Random")
    a, b = (node[name] for name in NUMBERS[kind])
    shape, dtype = node["shape"], _type(node, dtypes.float32)
    if any(n < 0 for n in shape):
        raise ValueError(f"shape is {shape}; expected lengths of at least 0")

    def draw(generator: Any) -> Tensor:
        node.fits((2, *shape), dtype)
        return F.drawn(kind.lower(), tuple(shape), a, b, dtype, generator)

    return Random(node, draw)


@reads("RandomNormalLike", since=1, fixed=EVERY)
@reads("RandomUniformLike", since=1, fixed=EVERY)
def read_drawn_like(node: Node) -> Random:
    kind = node.operator.removeprefix("Random").removesuffix("Like")
    a, b = (node[name] for name in NUMBERS[kind])
    dtype = _type(node, None)
    return Random(node, lambda x, generator: F.drawn_like(x, kind.lower(), a, b, dtype, generator))


@reads("Bernoulli", since=15, fixed=EVERY)
def read_bernoulli(node: Node) -> Random:
    dtype = _type(node, None)
    return Random(node, lambda p, generator: F.bernoulli(p, dtype, generator))


@reads("Multinomial", since=7, fixed=EVERY)
def read_multinomial(node: Node) -> Random:
    count, dtype = node["sample_size"], _type(node, dtypes.int32)
    if count < 1:
        raise ValueError(f"sample_size is {count}; expected at least 1")

    def draw(x: Tensor, generator: Any) -> Tensor:
        node.fits((3, *x.shape[:1], count), dtypes.float64)
        node.check_work(*x.shape[:1], max(count, 1000))
        return F.multinomial(x, count, dtype, generator)

    return Random(node, draw)


def _type(node: Node, default: Any) -> Any:
    code = node["dtype"]
    if code is None:
        return default
    if code not in DTYPES:
        raise Unsupported(f"dtype is {code}; minorm draws bool, integers of 8 to 64 bits, and floats of 16 to 64")
    return DTYPES[code]


# Writers


@writes(F.drawn, "RandomNormal", since=1)
@writes(F.drawn, "RandomUniform", since=1)
def write_drawn(g: Graph, kind: str, shape: Shape, a: float, b: float, dtype: Any, generator: Any) -> Value:
    if any(isinstance(n, Size) for n in shape):
        raise RuleNotApplicable(
            "the shape depends on a free axis; draw with a *_like function and a tensor of this shape"
        )
    dtype, lengths = np.dtype(dtype), tuple(int(n) for n in shape)
    also = {"shape": list(lengths), "dtype": _code(dtype)}
    return g.add(f"Random{kind.capitalize()}", shape=lengths, dtype=dtype, also=also, **_numbers(kind, a, b, generator))


@writes(F.drawn_like, "RandomNormalLike", since=1)
@writes(F.drawn_like, "RandomUniformLike", since=1)
def write_drawn_like(g: Graph, x: Value, kind: str, a: float, b: float, dtype: Any, generator: Any) -> Value:
    numbers = _numbers(kind, a, b, generator)
    return g.add(f"Random{kind.capitalize()}Like", x, dtype=g.result.dtype, also={"dtype": _said(dtype)}, **numbers)


@writes(F.bernoulli, "Bernoulli", since=15)
def write_bernoulli(g: Graph, p: Value, dtype: Any, generator: Any) -> Value:
    return g.add("Bernoulli", p, dtype=g.result.dtype, also={"dtype": _said(dtype)}, seed=_seed(generator))


@writes(F.multinomial, "Multinomial", since=7)
def write_multinomial(g: Graph, x: Value, count: int, dtype: Any, generator: Any) -> Value:
    dtype = g.result.dtype
    return g.add(
        "Multinomial", x, shape=g.result.shape, dtype=dtype, also={"dtype": _code(dtype)}, sample_size=int(count),
        seed=_seed(generator),
    )  # fmt: skip


def _numbers(kind: str, a: float, b: float, generator: Any) -> dict[str, Any]:
    first, second = NUMBERS[kind.capitalize()]
    return {first: float(a), second: float(b), "seed": _seed(generator)}


def _seed(generator: Any) -> float | None:
    return generator.seed if isinstance(generator, Seeded) else None


def _code(dtype: Any) -> int:
    return int(ELEMENT_TYPES[np.dtype(dtype)][0])


def _said(dtype: Any) -> int | None:
    return None if dtype is None else _code(dtype)
