"""Defects that are known: which runtime, in which cases, and in a sentence what it does there.

They were found by this command, by its authors' issues, or by reading the runtimes' sources; a cell that is wrong and
matches none is news.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from minorm.conformance import formula
from minorm.conformance.case import GRADIENTS, Case
from minorm.conformance.formula import trains_batch_norm
from minorm.devices import dtypes

OTHERS = (
    "onnxruntime", "reference", "torch", "openvino", "opencv", "tract", "mnn", "ncnn", "tvm", "tinygrad", "onnx2torch",
    "flax", "keras", "mlx", "paddle",
)  # fmt: skip
OPERATORS = tuple(formula.FORMULAS)
SQUARES_LESS_SQUARE = "takes the variance as E[x^2] - E[x]^2"


@dataclass(frozen=True)
class Defect:
    """A sentence, and where it holds: at these runtimes and operators, for such cases, where a verdict says so."""

    runtimes: tuple[str, ...]
    operators: tuple[str, ...]
    text: str
    matches: Callable[[Case], bool] = lambda _: True
    says: str = ""


def _is_half(case: Case) -> bool:
    return case.inputs[0].dtype in dtypes.HALVES


def _largest(case: Case) -> float:
    return float(np.abs(case.inputs[0].astype(np.float64)).max(initial=0.0))


def _is_double(case: Case) -> bool:
    return bool(case.inputs[0].dtype == dtypes.float64)


def _least_std(case: Case) -> float:
    return float(case.inputs[0].astype(np.float64).std(tuple(case.get("axes", [0, 2, 3]))).min())


def _is_constant(case: Case) -> bool:
    x = case.inputs[0]
    return bool(x.size and (x == x.reshape(-1)[0]).all())


KNOWN = (
    # onnxruntime
    Defect(
        ("onnxruntime",),
        ("BatchNormalization",),
        "updates the running statistics in the caller's own arrays when nobody fetches them",
        says="it overwrote",
    ),
    Defect(
        ("onnxruntime",),
        ("BatchNormalization",),
        "merges equal initializers (scale is var, B is mean in a fresh layer), then updates them in place",
        lambda case: bool(case.held) and trains_batch_norm(case),
    ),
    Defect(
        ("onnxruntime",),
        ("BatchNormalization",),
        "gives 1 / std where the specification says variance",
        says="saved_var",
    ),
    Defect(
        ("onnxruntime",),
        ("MeanVarianceNormalization",),
        "leaves 1e-9 out: 0 / 0 where values are equal, and another result where they are small",
        lambda case: _least_std(case) <= 1e-6,
    ),
    # onnx's reference evaluator
    Defect(
        ("reference",),
        ("BatchNormalization",),
        "normalizes with a blend of the stored and the batch's statistics when y alone is fetched",
        lambda case: case.opset < 14 and len(case.wanted) == 1,
    ),
    Defect(
        ("reference",),
        ("BatchNormalization", "LayerNormalization", "RMSNormalization"),
        "gives every output in the type of X",
        says="; expected",
    ),
    Defect(
        ("reference",),
        ("LpNormalization",),
        "adds up x, and not |x|",
        lambda case: case.get("p", 2) == 1,
    ),
    Defect(
        ("reference",),
        ("LRN",),
        "lets the index that should run over the channels run over the samples",
    ),
    Defect(
        ("tinygrad",),
        ("BatchNormalization", "RMSNormalization"),
        "gives y in the wider type of x and the statistics",
        says="is float32(",
    ),
    Defect(
        ("reference", "tract", "tinygrad"),
        ("BatchNormalization", "InstanceNormalization", "GroupNormalization", "LayerNormalization", "RMSNormalization",
         "LpNormalization"),
        "computes in 16 bits what it reads in 16 bits",
        _is_half,
    ),
    # those of adapters/
    Defect(
        ("openvino", "mnn", "tvm", "ncnn"),
        ("BatchNormalization",),
        "knows no training: it normalizes with the stored statistics, and does not say so",
        trains_batch_norm,
    ),
    Defect(
        ("opencv",),
        OPERATORS,
        "gives float32 where the file says float16",
        says="is float32(",
    ),
    Defect(
        ("opencv",),
        OPERATORS,
        "reads the bytes of float64 as if they were float32",
        _is_double,
    ),
    Defect(
        ("openvino", "tract", "keras", "tinygrad"),
        OPERATORS,
        "computes float64 in float32",
        _is_double,
    ),
    Defect(
        ("tract", "mnn"),
        ("BatchNormalization",),
        "crashes, or reads other memory, where x has no axis of channels",
        lambda case: case.inputs[0].ndim == 1,
    ),
    Defect(
        ("mnn",),
        ("BatchNormalization",),
        "ignores spatial=0, and takes the first statistics for every position",
        lambda case: case.get("spatial", 1) == 0,
    ),
    Defect(
        ("openvino", "mnn", "onnx2torch"),
        ("LRN",),
        "lets an even window reach further down, where the specification says up",
        lambda case: case.attributes["size"] % 2 == 0,
    ),
    Defect(
        ("flax",),
        ("BatchNormalization", "InstanceNormalization", "GroupNormalization", "LayerNormalization"),
        f"{SQUARES_LESS_SQUARE}, as its layers do by default (use_fast_variance)",
        lambda case: bool(case.offset) or _is_constant(case),
    ),
    Defect(
        ("flax", "mlx"),
        ("BatchNormalization",),
        "gives y in the wider type of x and the statistics",
        says="is float32(",
    ),
    Defect(
        ("mlx",),
        ("BatchNormalization", "RMSNormalization"),
        "gives the running statistics, and y where scale is wider, in the type of x",
        says="; expected",
    ),
    Defect(
        ("opencv", "paddle", "ncnn", "tvm"),
        ("BatchNormalization", "InstanceNormalization", "GroupNormalization", "LayerNormalization"),
        SQUARES_LESS_SQUARE,
        lambda case: bool(case.offset) or _is_constant(case),
    ),
    Defect(
        ("paddle",),
        ("BatchNormalization",),
        "leaves x as it is where a channel has one value",
        lambda case: case.inputs[0].size == case.inputs[0].shape[1],
    ),
    Defect(
        ("mnn",),
        ("MeanVarianceNormalization",),
        "leaves 1e-9 out: 0 / 0 where values are equal, and another result where they are small",
        lambda case: _least_std(case) <= 1e-6,
    ),
    Defect(
        ("mnn", "tract", "tinygrad"),
        ("LpNormalization",),
        "gives 0 / 0 for a row of zeros",
        lambda case: not case.inputs[0].any(-1).all(),
    ),
    Defect(
        ("flax", "keras"),
        ("BatchNormalization",),
        "gives NaN as the gradient of scale where a batch is empty, and no value stands behind it",
        lambda case: case.kind == GRADIENTS and case.inputs[0].size == 0,
    ),
    Defect(
        ("onnx2torch",),
        ("LayerNormalization",),
        "gives y alone where the file asks for the mean and 1 / std too",
        says="1 outputs; expected 3",
    ),
    # what several do
    Defect(
        ("torch", "openvino", "opencv", "paddle"),
        ("LpNormalization",),
        "divides by at least a small number, 1e-12 in PyTorch",
        lambda case: 0 < _largest(case) < 1e-13,
    ),
    Defect(
        ("onnxruntime", "reference", "tract", "mnn", "opencv", "openvino", "tinygrad"),
        ("LpNormalization",),
        "lets squares underflow float32, though the result is an ordinary number",
        lambda case: 0 < _largest(case) < 1e-20,
    ),
    Defect(
        OTHERS,
        ("BatchNormalization", "InstanceNormalization", "GroupNormalization", "LayerNormalization", "RMSNormalization",
         "MeanVarianceNormalization", "LpNormalization"),
        "lets squares overflow float32, though the result is an ordinary number",
        lambda case: _largest(case) > 1e19,
    ),
    Defect(
        ("onnxruntime", "reference"),
        ("GroupNormalization",),
        "takes the variance as E[x^2] - E[x]^2, as the published function body does",
        lambda case: bool(case.offset) or _is_constant(case),
    ),
    Defect(
        ("reference", "tract", "tvm", "tinygrad"),
        ("MeanVarianceNormalization",),
        "takes the variance as E[x^2] - E[x]^2, as the published function body does",
        lambda case: bool(case.offset) or _is_constant(case),
    ),
    Defect(
        OTHERS,
        ("BatchNormalization", "InstanceNormalization", "GroupNormalization", "LayerNormalization"),
        "rounds the sum of equal values, so that their mean is another number than they are",
        _is_constant,
    ),
)  # fmt: skip


def known(runtime: str, case: Case, said: str) -> str:
    """The first defect that explains it; "" where none does."""
    for defect in KNOWN:
        asked = runtime in defect.runtimes and case.operator in defect.operators
        if asked and defect.says in said and defect.matches(case):
            return defect.text
    return ""
