"""`verify` checks, with the onnx checker and onnxruntime, that a file computes the same results as the model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from minorm.devices import dtypes
from minorm.onnx.checking import sandbox, sandbox_worker
from minorm.onnx.graph import encoding
from minorm.onnx.graph.errors import VerifyError
from minorm.serialization import limits
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

# The largest allowed |difference|, as a share of max(1, max |expected|).
TOLERANCE = {dtypes.float64: 1e-9, dtypes.float32: 1e-4, dtypes.float16: 1e-2, dtypes.bfloat16: 6e-2}


@documented(
    {},
    checker='"passed", or why it did not run',
    runtime='"onnxruntime <version>", or why it did not run',
    difference="the largest |difference| of an output",
    relative="the largest |difference| / max(1, max |expected|) of an output",
    outputs="the runtime's outputs; () if nothing was compared",
    sizes="the shapes of the inputs, if several were compared",
)
@dataclass(frozen=True)
class Report:
    """Holds the result of `verify`; `print(report)` shows one line.

    Example:
        >>> print(mn.onnx.Report("passed", "onnxruntime 1.26.0", difference=1e-7))
        checker: passed; onnxruntime 1.26.0; largest difference 1e-07
    """

    checker: str
    runtime: str
    difference: float = 0.0
    relative: float = 0.0
    outputs: tuple[Any, ...] = ()
    sizes: tuple[str, ...] = ()

    @property
    def compared(self) -> bool:
        """Return True if a runtime computed outputs that were compared."""
        return bool(self.outputs)

    def __str__(self) -> str:
        sizes = f" with {'; '.join(self.sizes)}" if self.sizes else ""
        return f"checker: {self.checker}; {self.runtime}; largest difference {self.difference:.3g}{sizes}"


@documented(
    {},
    model="an onnx.ModelProto, or a path",
    inputs="arrays or Tensors in the order of the graph's inputs, or by name",
    expected="the expected first outputs, arrays or Tensors",
    tolerance="the largest allowed |difference| / max(1, max |expected|); None depends on the type: 1e-4 for float32",
    training="True: the model is in its training form, and random results (dropout) are not compared",
    seconds="the time that the checker and onnxruntime may take in their separate process",
    memory="the bytes of memory that the separate process may take; None is 4 GiB more than model and inputs need",
)
def verify(
    model: onnx.ModelProto | str | os.PathLike[str],
    inputs: Sequence[Any] | Mapping[str, Any],
    expected: Sequence[Any],
    *,
    tolerance: float | None = None,
    training: bool = False,
    seconds: float = sandbox.SECONDS,
    memory: int | None = None,
) -> Report:
    """Check `model`, run it in onnxruntime, and compare its first outputs with `expected`, within a tolerance.

    Raises VerifyError if the checker or onnxruntime rejects the model, crashes, hangs or needs too much memory. Raises
    VerifyError, with the largest difference, if max |onnxruntime(inputs) - expected| is above the tolerance. If
    onnxruntime is missing or lacks an operator, nothing is compared, and the report says why.

    Example:
        >>> model, x = nn.Linear(2, 3), mn.randn(4, 2)
        >>> report = mn.onnx.verify(mn.onnx.export(model, x), [x], [model(x).detach()])
        >>> report.difference < 1e-5
        True
    """
    if isinstance(model, onnx.ModelProto):
        proto = model
    else:
        proto = encoding.read(model, "verify", limits.ONNX)
    names = [entry.name for entry in proto.graph.input]
    feeds = dict(inputs) if isinstance(inputs, Mapping) else dict(zip(names, inputs, strict=True))
    arrays = {name: _array(value) for name, value in feeds.items()}
    random = training and any(node.op_type == "Dropout" for node in proto.graph.node)
    answer = sandbox.ask(model, None if random else arrays, checker=how_to_check(proto), seconds=seconds, memory=memory)
    if answer.failure is not None:
        raise VerifyError(f"verify: {answer.failure[1].text}")
    checker = checked(how_to_check(proto))
    if not answer["load"].passed:
        return Report(checker, answer["load"].text)
    runtime = sandbox.version("onnxruntime")
    if answer.outputs is None:
        return Report(checker, f"{runtime} loads the model; results are not compared, because dropout is random")
    return Report(checker, runtime, *compare(proto, answer.outputs, expected, tolerance), answer.outputs)


def _array(value: Any) -> Any:
    """Return a value as a NumPy array; the value may be a Tensor on any device."""
    return value.numpy(force=True) if isinstance(value, Tensor) else np.asarray(value)


def compare(
    proto: onnx.ModelProto, outputs: Sequence[Any], expected: Sequence[Any], tolerance: float | None = None
) -> tuple[float, float]:
    """Return the largest absolute difference, and the largest difference divided by max(1, max |expected|).

    Raise VerifyError if a difference is too large.
    """
    runtime = sandbox.version("onnxruntime")
    wanted = [_array(value) for value in expected]
    worst, relative = 0.0, 0.0
    wrong = wrong_in_onnxruntime(proto)
    for entry, got, want in zip(proto.graph.output, outputs, wanted, strict=False):
        if entry.name in wrong:
            continue
        if got.shape != want.shape or got.dtype != want.dtype:
            raise VerifyError(
                f"verify: {entry.name} is {got.dtype}{got.shape} in {runtime}, {want.dtype}{want.shape} in the model"
            )
        difference, scale = difference_of(got, want)
        allowed = tolerance if tolerance is not None else TOLERANCE.get(want.dtype, 0.0)
        if not difference <= allowed * scale:
            raise VerifyError(
                f"verify: {entry.name} differs by {difference:.3g} between {runtime} and the model; allowed: "
                f"{allowed:g} * max(1, max|expected|) = {allowed * scale:.3g}"
            )
        worst, relative = max(worst, difference), max(relative, difference / scale)
    return worst, relative


def wrong_in_onnxruntime(proto: onnx.ModelProto) -> set[str]:
    """Return the outputs that onnxruntime computes wrongly: saved_var of BatchNormalization 7 and 9.

    For saved_var, onnxruntime returns 1 / std.
    """
    return {
        node.output[4] for node in proto.graph.node if node.op_type == "BatchNormalization" and len(node.output) > 4
    } - {""}


def difference_of(got: Any, want: Any) -> tuple[float, float]:
    """Return the largest |difference| and max(1, max |want|); equal infinities have difference 0, and so do two NaN."""
    a, b = (v.astype(np.float64) for v in (got, want))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0.0, np.abs(a - b))
    finite = np.abs(b[np.isfinite(b)])
    return float(difference.max(initial=0.0)), max(1.0, float(finite.max(initial=0.0)))


# Shape inference fails inside the published body, on valid models too.
_UNSOUND = "without shape inference, which cannot read MeanVarianceNormalization"


def how_to_check(proto: onnx.ModelProto) -> str:
    """Return how the checker can check this model: "full", "plain" (no shape inference), or "" (not at all)."""
    operators = {node.op_type for node in proto.graph.node}
    if "GroupNormalization" in operators and any(18 <= o.version < 21 for o in proto.opset_import if not o.domain):
        return ""  # its schema is marked deprecated, so the checker refuses it, although runtimes run it
    return "plain" if "MeanVarianceNormalization" in operators else "full"


def checked(how: str) -> str:
    """Return the text of the report for a checker that found no error; `how` says how the checker ran."""
    return {"full": "passed", "plain": f"passed ({_UNSOUND})", "": "not asked"}[how]


# Verification without another process, for many of minorm's own models


def check(proto: onnx.ModelProto) -> str:
    """Run the onnx checker on the model, with shape inference if this works for the model's operators.

    With some operators, shape inference fails even on valid models.
    """
    full = how_to_check(proto) == "full"
    try:
        onnx.checker.check_model(proto, full_check=full)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise VerifyError(f"verify: the checker of onnx {onnx.__version__} rejects the model: {error}") from error
    return checked("full" if full else "plain")


def start(proto: onnx.ModelProto) -> Any:
    """Return an onnxruntime session for the model, or a sentence if onnxruntime has no kernel for the model."""
    try:
        return sandbox_worker.start(proto.SerializeToString())
    except Exception as error:  # its exceptions have no more precise base class
        stage = sandbox.failed("load", str(error))
        if stage.state == "absent":
            return stage.text
        raise VerifyError(f"verify: {stage.text}") from error


def run(session: Any, feeds: Mapping[str, Any]) -> list[Any]:
    """Run a session and return all outputs; inputs and outputs may be bfloat16."""
    half = dtypes.bfloat16
    given = {n: (np.ascontiguousarray(a), sandbox_worker.BFLOAT16 if a.dtype == half else 0) for n, a in feeds.items()}
    return [array.view(half) if kind else array for array, kind in sandbox_worker.run(session, given)]
