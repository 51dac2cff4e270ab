"""Describe a case, which is one node with its numbers, and write the case as a file for the runtimes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, ValueInfoProto, helper, numpy_helper

from minorm.devices import dtypes
from minorm.onnx.graph import versions

OUTPUTS, GRADIENTS, MASKED, CUMULATIVE = "outputs", "gradients", "masked", "cumulative"
ANSWERS = {
    GRADIENTS: ("gradient of x", "gradient of scale", "gradient of bias"),
    MASKED: ("y", "mean", "var"),
    CUMULATIVE: ("mean", "var"),
}


@dataclass(frozen=True)
class Case:
    """Describes a node of `operator`, in the version of `opset`.

    inputs    the arrays, in the operator's order
    outputs   names of the node's outputs, "" for an absent output
    fetched   the number of outputs that are needed; None for all outputs
    held      the indices of the inputs that are initializers of the file; all other inputs are fed
    offset    the mean of the data divided by their standard deviation
    kind      the wanted results: "outputs" of the node, or results that only frameworks can compute. "gradients" are
              the gradients of x, scale and bias, where `beside` is the gradient of y. "masked" is a batch norm of the
              entries for which `beside` is true. "cumulative" are running statistics that are the plain average over
              batches, where each sample of x is a batch
    """

    operator: str
    opset: int
    name: str
    inputs: tuple[Any, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ("y",)
    fetched: int | None = None
    held: tuple[int, ...] = ()
    offset: float = 0.0
    kind: str = OUTPUTS
    beside: Any = None

    @property
    def wanted(self) -> list[tuple[int, str]]:
        """Return a pair (index, name) for each result that the case asks for."""
        if self.kind == GRADIENTS:
            return list(enumerate(ANSWERS[GRADIENTS][: len(self.inputs)]))
        return self.file_outputs if self.kind == OUTPUTS else list(enumerate(ANSWERS[self.kind]))

    @property
    def file_outputs(self) -> list[tuple[int, str]]:
        """Return a pair (index, name) for each output of the node that is also an output of the file."""
        return [(place, name) for place, name in enumerate(self.outputs) if name][: self.fetched]

    def feeds(self) -> dict[str, Any]:
        """Return a dict from names to the inputs that are fed. The other inputs are initializers of the file."""
        return {f"i{place}": array for place, array in enumerate(self.inputs) if place not in self.held}

    def get(self, attribute: str, default: Any) -> Any:
        """Return an attribute, or the default if it is absent."""
        return self.attributes.get(attribute, default)


def model(case: Case) -> ModelProto:
    """Return the case as an ONNX model: one node with its inputs and initializers.

    The runtime must infer the types of the outputs.
    """
    names = [f"i{place}" for place in range(len(case.inputs))]
    node = helper.make_node(case.operator, names, list(case.outputs), **case.attributes)
    kinds = [helper.np_dtype_to_tensor_dtype(array.dtype) for array in case.inputs]
    graph = helper.make_graph(
        [node],
        "case",
        [
            helper.make_tensor_value_info(name, kinds[int(name[1:])], array.shape)
            for name, array in case.feeds().items()
        ],
        [ValueInfoProto(name=name) for _, name in case.file_outputs],
        [numpy_helper.from_array(case.inputs[place], names[place]) for place in case.held],
    )
    imports = [helper.make_opsetid("", case.opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=versions.ir_version(case.opset))


def draw(shape: Sequence[int], dtype: Any = dtypes.float32, *, offset: float = 0.0, seed: str = "") -> Any:
    """Draw normal numbers around `offset`; the same shape, offset and seed give the same numbers in any process."""
    key = zlib.crc32(f"{seed}{tuple(shape)}{offset}".encode())
    return (np.random.default_rng(key).normal(size=tuple(shape)) + offset).astype(dtype)
