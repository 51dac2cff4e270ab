"""The node tests that the onnx package brings along: which of them minorm reads, and how results are compared."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from minorm.onnx.graph import registry
from minorm.onnx.graph.storage.narrow import TYPES
from minorm.onnx.graph.tensors import DTYPES
from minorm.onnx.operators import expansions

# Two units in the last place, as onnx's own runner allows bfloat16; where float16 differs, ours is nearer the truth.
TWO_UNITS = {"bfloat16": 2.0**-6, "float16": 2.0**-9}


@functools.cache
def everything() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package computes its expected values while it is asked for them
        return list(load_model_tests(kind="node"))


def considered(model: Any) -> bool:
    """Whether every operator is read and every type of inputs and outputs is one of minorm's."""
    operators = {("", operator) for operator, _ in registry.READERS} | expansions.EXPANSIONS.keys()
    return all(element_of(value.type) in DTYPES | TYPES for value in (*model.graph.input, *model.graph.output)) and all(
        (node.domain, node.op_type) in operators for node in model.graph.node
    )


def element_of(kind: Any) -> int:
    """The element type of a tensor, of a sequence of them, or of an optional one of either; 0 of anything else."""
    kind = kind.optional_type.elem_type if kind.HasField("optional_type") else kind
    kind = kind.sequence_type.elem_type if kind.HasField("sequence_type") else kind
    return int(kind.tensor_type.elem_type)


def plain(value: Any) -> Any:
    """An array, a list of them for a sequence, None for what is absent."""
    if value is None or isinstance(value, list):
        return value if value is None else [plain(x) for x in value]
    if isinstance(value, onnx.OptionalProto):
        return plain(numpy_helper.to_optional(value))
    if isinstance(value, onnx.SequenceProto):
        return plain(numpy_helper.to_list(value))
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def compare(got: Sequence[Any], want: Sequence[Any], rtol: float = 1e-3, atol: float = 1e-7) -> None:
    assert len(got) == len(want)
    for a, b in zip(got, map(plain, want), strict=True):
        if a is None or isinstance(a, list):
            assert isinstance(b, type(a))
            compare(a or [], b or [], rtol, atol)
            continue
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if a.dtype == bool:
            np.testing.assert_array_equal(a, b)
        else:
            allowed = max(rtol, TWO_UNITS.get(str(a.dtype), 0))
            np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=allowed, atol=atol)
