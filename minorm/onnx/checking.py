"""`verify`: does the file compute what the model computes? The checker and onnxruntime say."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from minorm import dtypes
from minorm.onnx.errors import VerifyError

# Largest |difference| allowed, as a share of max(1, max |expected|).
TOLERANCE = {dtypes.float64: 1e-9, dtypes.float32: 1e-4, dtypes.float16: 1e-2, dtypes.bfloat16: 6e-2}


@dataclass(frozen=True)
class Report:
    """What verify found. `difference` is the largest |difference|; `relative` that over max(1, max |expected|)."""

    checker: str  # "passed", or why it was not asked
    runtime: str  # "onnxruntime <version>", or why it was not run
    difference: float = 0.0
    relative: float = 0.0
    outputs: tuple[Any, ...] = ()

    @property
    def compared(self) -> bool:
        """Whether a runtime computed outputs that were compared."""
        return bool(self.outputs)

    def __str__(self) -> str:
        return f"checker: {self.checker}; {self.runtime}; largest difference {self.difference:.3g}"


def verify(
    model: onnx.ModelProto | str | os.PathLike[str],
    inputs: Sequence[Any] | Mapping[str, Any],
    expected: Sequence[Any],
    *,
    tolerance: float | None = None,
    training: bool = False,
) -> Report:
    """Check `model`, run it in onnxruntime on `inputs` and compare its first outputs with `expected`.

    inputs      arrays or Tensors in the order of the graph's inputs, or by name
    tolerance   largest difference allowed over max(1, max |expected|); default by type, 1e-4 for float32
    training    the model is in its training form: random results (dropout) are not compared

    Raises VerifyError where the checker or onnxruntime rejects the model, and with the largest difference where
    outputs differ. Where onnxruntime is missing, or does not have an operator, the report says so and nothing is
    compared.
    """
    proto = model if isinstance(model, onnx.ModelProto) else onnx.load(os.fspath(model))
    checker = check(proto)
    try:
        import onnxruntime
    except ImportError:
        return Report(checker, "onnxruntime is not installed: not compared")
    session = start(proto)
    if isinstance(session, str):
        return Report(checker, session)
    runtime = f"onnxruntime {onnxruntime.__version__}"
    if training and any(node.op_type == "Dropout" for node in proto.graph.node):
        return Report(checker, f"{runtime} loads it; dropout is random: not compared")

    names = [entry.name for entry in proto.graph.input]
    feeds = dict(inputs) if isinstance(inputs, Mapping) else dict(zip(names, inputs, strict=True))
    arrays = {
        name: np.array(getattr(value, "data", value)) for name, value in feeds.items()
    }  # copies: it may write to them
    outputs = run(session, proto, arrays)
    wanted = [np.asarray(getattr(value, "data", value)) for value in expected]
    worst, relative = 0.0, 0.0
    for entry, got, want in zip(proto.graph.output, outputs, wanted, strict=False):
        if got.shape != want.shape or got.dtype != want.dtype:
            raise VerifyError(
                f"verify: {entry.name} is {got.dtype}{got.shape} in {runtime}, {want.dtype}{want.shape} in the model"
            )
        difference, scale = _compare(got, want)
        allowed = tolerance if tolerance is not None else TOLERANCE.get(want.dtype, 0.0)
        if not difference <= allowed * scale:
            raise VerifyError(
                f"verify: {entry.name} differs by {difference:.3g} between {runtime} and the model; allowed: "
                f"{allowed:g} * max(1, max|expected|) = {allowed * scale:.3g}"
            )
        worst, relative = max(worst, difference), max(relative, difference / scale)
    return Report(checker, runtime, worst, relative, tuple(outputs))


def _compare(got: Any, want: Any) -> tuple[float, float]:
    """The largest |difference| and max(1, max |want|); equal infinities and two NaN do not differ."""
    a, b = (v.astype(np.float64) for v in (got, want))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0.0, np.abs(a - b))
    finite = np.abs(b[np.isfinite(b)])
    return float(difference.max(initial=0.0)), max(1.0, float(finite.max(initial=0.0)))


def check(proto: onnx.ModelProto) -> str:
    """Run the onnx checker, with shape inference where that is sound."""
    unsound = {"MeanVarianceNormalization"}  # shape inference fails inside the published body, on valid models too
    full = not any(node.op_type in unsound for node in proto.graph.node)
    try:
        onnx.checker.check_model(proto, full_check=full)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise VerifyError(f"verify: the checker of onnx {onnx.__version__} rejects the model: {error}") from error
    return "passed" if full else "passed (without shape inference, which cannot read MeanVarianceNormalization)"


def start(proto: onnx.ModelProto) -> Any:
    """An onnxruntime session; a sentence where onnxruntime has no kernel for the model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # what it would say about the model is in the exception
    options.intra_op_num_threads = 1  # a check, not a race: no pool of threads that spin
    try:
        return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions derive from nothing more precise
        if (
            "NOT_IMPLEMENTED" in str(error)
            or "ValidateOpsetForDomain" in str(error)
            or "Unsupported model IR version" in str(error)
        ):
            return f"onnxruntime {onnxruntime.__version__} does not run this model: {str(error)[:200]}"
        raise VerifyError(f"verify: onnxruntime {onnxruntime.__version__} rejects the model: {error}") from error


def run(session: Any, proto: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    """All outputs; bfloat16, which NumPy and onnxruntime exchange through raw bits, goes in and out as itself."""
    try:
        return _run(session, proto, feeds)
    except Exception as error:  # its exceptions derive from nothing more precise
        raise VerifyError(f"verify: onnxruntime fails on this model: {error}") from error


def _run(session: Any, proto: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    import onnxruntime

    if not any(array.dtype == dtypes.bfloat16 for array in feeds.values()) and not _returns_bfloat16(proto):
        return list(session.run(None, dict(feeds)))
    values = {}
    for name, array in feeds.items():
        if array.dtype == dtypes.bfloat16:
            values[name] = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
                np.ascontiguousarray(array).view(np.uint16), onnx.TensorProto.BFLOAT16
            )
        else:
            values[name] = onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))
    results = session.run_with_ort_values([o.name for o in proto.graph.output], values)
    return [_from_ort(result) for result in results]


def _from_ort(value: Any) -> Any:
    if value.element_type() != onnx.TensorProto.BFLOAT16:
        return value.numpy()
    shape = value.shape()
    bits = (ctypes.c_uint16 * math.prod(shape)).from_address(value.data_ptr())  # numpy() does not know bfloat16
    return np.array(bits, np.uint16).view(dtypes.bfloat16).reshape(shape)


def _returns_bfloat16(proto: onnx.ModelProto) -> bool:
    return any(o.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16 for o in proto.graph.output)
