"""A model in another float type, as the module loaded from it has it; and what is held against what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

import minorm as mn
from minorm.devices import dtypes
from minorm.onnx.checking import verification
from minorm.onnx.exporting.retyping import retype
from minorm.onnx.graph.encoding import fill
from minorm.onnx.graph.node_rewriter import tensors_of

TYPES = {"float16": dtypes.float16, "bfloat16": dtypes.bfloat16, "float32": dtypes.float32, "float64": dtypes.float64}


def tensors(proto: Any) -> dict[str, Any]:
    """Return a dict of the graph's initializers and Constants; the keys are the names of their values."""
    held = {node.output[0]: node.attribute[0].t for node in proto.graph.node if node.op_type == "Constant"}
    return {**held, **{tensor.name: tensor for tensor in proto.graph.initializer}}


def retyped(proto: Any, dtype: Any, module: Any = None, runnable: bool = False) -> Any:
    """The model in this type. module: it was loaded from the model and has the type; the contents are from there."""
    new = onnx.ModelProto()
    new.CopyFrom(proto)
    state = {} if module is None else module.state_dict()
    held = {name: state[name].array for name in tensors(new) if name in state}
    retype(new, np.dtype(dtype), {}, held, runnable)
    for name, array in held.items():
        tensor = tensors(new)[name]
        for field in ("raw_data", "float_data", "double_data", "int32_data"):
            tensor.ClearField(field)
        fill([(tensor, np.ascontiguousarray(np.broadcast_to(array, tuple(tensor.dims))))])
    onnx.shape_inference.infer_shapes(new, check_type=True, strict_mode=True)
    if all(entry.type.tensor_type.HasField("shape") for entry in new.graph.output):
        verification.check(new)
    return new


def session(proto: Any) -> Any:
    """Without the last level of optimization, at which onnxruntime 1.32 crashes on a MatMul of transposed float16."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(proto: Any, *arrays: Any) -> list[Any]:
    """The results of onnxruntime."""
    held = {tensor.name for tensor in proto.graph.initializer}
    names = [entry.name for entry in proto.graph.input if entry.name not in held]
    return verification.run(session(proto), dict(zip(names, arrays, strict=True)))


def results(module: Any, *arrays: Any) -> list[Any]:
    """The results of minorm."""
    y = module(*map(mn.Tensor, arrays))
    return [t.array for t in (y if isinstance(y, tuple) else (y,))]


def cast(array: Any, dtype: Any) -> Any:
    return array.astype(dtype) if dtypes.is_float(array.dtype) else array


def difference(got: Sequence[Any], want: Sequence[Any]) -> float:
    """The largest |difference| of floats over max(1, max |want|); types and shapes agree, and whatever is no float."""
    worst = 0.0
    for a, b in zip(got, want, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if dtypes.is_float(a.dtype):
            error, scale = verification.difference_of(a, b)
            worst = max(worst, error / scale)
        else:
            np.testing.assert_array_equal(a, b)
    return worst


def types_of(proto: Any) -> set[int]:
    """The float types that occur in tensors, inputs, outputs and what Casts name."""
    found = {tensor.data_type for tensor in tensors_of(proto)}
    found |= {entry.type.tensor_type.elem_type for entry in (*proto.graph.input, *proto.graph.output)}
    found |= {node.attribute[0].i for node in proto.graph.node if node.op_type == "Cast"}
    return found & {1, 10, 11, 16}
