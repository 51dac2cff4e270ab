"""The known defects. Each has runtimes, cases, and a sentence that says what the runtimes do.

We know the defects from `minorm conform`, from the issues of the runtimes, or from their source code. A wrong result
that matches no defect is a new finding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from minorm.conformance import formula
from minorm.conformance.case import GRADIENTS, Case
from minorm.conformance.causes import CAUSES
from minorm.conformance.formula import trains_batch_norm
from minorm.devices import dtypes

OTHERS = (
    "onnxruntime", "reference", "torch", "openvino", "opencv", "tract", "mnn", "ncnn", "tvm", "tinygrad", "onnx2torch",
    "flax", "keras", "mlx", "paddle",
)  # fmt: skip
OPERATORS = tuple(formula.FORMULAS)


@dataclass(frozen=True)
class Defect:
    """A known defect: its cause, and the cells that this cause explains.

    A cell is explained if its runtime, its operator and its case match, and its verdict has the words `says`.
    """

    runtimes: tuple[str, ...]
    operators: tuple[str, ...]
    cause: str
    matches: Callable[[Case], bool] = lambda _: True
    says: str = ""

    @property
    def text(self) -> str:
        """Return the cause as a sentence."""
        return CAUSES[self.cause].text


def _is_half(case: Case) -> bool:
    return case.inputs[0].dtype in dtypes.HALVES


def _largest(case: Case) -> float:
    return float(np.abs(case.inputs[0].astype(np.float64)).max(initial=0.0))


def _is_double(case: Case) -> bool:
    return bool(case.inputs[0].dtype == dtypes.float64)


def _shows_momentum(case: Case) -> bool:
    """Return True if the case needs running statistics, and 1 - momentum in place of momentum would change them."""
    return (
        len(case.wanted) > 1 and trains_batch_norm(case) and case.get("momentum", 0.9) != 0.5 and _largest(case) < 1e19
    )


def _least_std(case: Case) -> float:
    x = case.inputs[0].astype(np.float64)
    return float(x.std(tuple(case.get("axes", [0, 2, 3]))).min()) if x.size else math.inf


def _is_constant(case: Case) -> bool:
    x = case.inputs[0]
    return bool(x.size and (x == x.reshape(-1)[0]).all())


KNOWN = (
    # onnxruntime
    Defect(
        ("onnxruntime",),
        ("BatchNormalization",),
        "overwrites-running-statistics",
        says="it overwrote",
    ),
    Defect(
        ("onnxruntime",),
        ("BatchNormalization",),
        "merges-equal-initializers",
        lambda case: bool(case.held) and trains_batch_norm(case),
    ),
    Defect(
        ("onnxruntime",),
        ("BatchNormalization",),
        "inverse-for-variance",
        says="saved_var",
    ),
    Defect(
        ("onnxruntime",),
        ("MeanVarianceNormalization",),
        "leaves-1e-9-out",
        lambda case: _least_std(case) <= 1e-6,
    ),
    # onnx's reference evaluator
    Defect(
        ("reference",),
        ("BatchNormalization",),
        "blends-statistics",
        lambda case: case.opset < 14 and len(case.wanted) == 1,
    ),
    Defect(
        ("reference",),
        ("BatchNormalization", "LayerNormalization", "RMSNormalization"),
        "type-of-x-for-all",
        says="; expected",
    ),
    Defect(
        ("reference",),
        ("LpNormalization",),
        "sums-x",
        lambda case: case.get("p", 2) == 1,
    ),
    Defect(
        ("reference",),
        ("LRN",),
        "window-over-samples",
    ),
    Defect(
        ("tinygrad",),
        ("BatchNormalization", "RMSNormalization"),
        "wider-type-of-y",
        says="is float32(",
    ),
    Defect(
        ("reference", "tract", "tinygrad"),
        ("BatchNormalization", "InstanceNormalization", "GroupNormalization", "LayerNormalization", "RMSNormalization",
         "LpNormalization"),
        "computes-in-16-bits",
        _is_half,
    ),
    # the runtimes of adapters/
    Defect(
        ("onnx2torch", "tvm"),
        ("LayerNormalization",),
        "lacks-mean-and-inverse",
        lambda case: len(case.file_outputs) > 1,
    ),
    Defect(
        ("mnn",),
        ("BatchNormalization", "InstanceNormalization"),
        "crashes-on-16-bits",
        _is_half,
        says="crashed",
    ),
    Defect(
        ("ncnn",),
        ("GroupNormalization",),
        "scale-of-each-group",
        lambda case: case.opset < 21 and case.inputs[1].size < case.inputs[0].shape[1],
    ),
    Defect(
        ("ncnn", "mnn"),
        ("LayerNormalization", "RMSNormalization"),
        "several-axes",
        lambda case: case.inputs[1].ndim > 1,
    ),
    Defect(
        ("tvm",),
        ("RMSNormalization",),
        "type-of-x-for-all",
        says="is float16(",
    ),
    Defect(
        ("openvino",),
        ("BatchNormalization",),
        "training-of-old-versions",
        lambda case: case.opset < 7 and trains_batch_norm(case),
    ),
    Defect(("mnn", "ncnn"), ("BatchNormalization",), "knows-no-training", trains_batch_norm),
    Defect(("tvm",), ("BatchNormalization",), "momentum-the-other-way", _shows_momentum, says=" is off"),
    Defect(("opencv",), OPERATORS, "float32-for-float16", says="is float32("),
    Defect(("tvm",), ("BatchNormalization",), "float32-for-float16", says="is float32("),
    Defect(("opencv",), OPERATORS, "reads-float64-as-float32", _is_double),
    Defect(("openvino", "tract", "keras", "tinygrad", "tvm"), OPERATORS, "computes-float64-in-float32", _is_double),
    Defect(
        ("tract", "mnn", "ncnn"),
        ("BatchNormalization",),
        "no-axis-of-channels",
        lambda case: case.inputs[0].ndim == 1,
    ),
    Defect(
        ("mnn", "ncnn"),
        ("BatchNormalization",),
        "ignores-spatial",
        lambda case: case.get("spatial", 1) == 0,
    ),
    Defect(
        ("openvino", "mnn", "onnx2torch"),
        ("LRN",),
        "window-the-other-way",
        lambda case: case.attributes["size"] % 2 == 0,
    ),
    Defect(
        ("flax",),
        ("BatchNormalization", "InstanceNormalization", "GroupNormalization", "LayerNormalization"),
        "variance-by-squares",
        lambda case: bool(case.offset) or _is_constant(case),
    ),
    Defect(
        ("flax", "mlx"),
        ("BatchNormalization",),
        "wider-type-of-y",
        says="is float32(",
    ),
    Defect(
        ("mlx",),
        ("BatchNormalization", "RMSNormalization"),
        "type-of-x-for-all",
        says="; expected",
    ),
    Defect(
        ("opencv", "paddle", "ncnn", "tvm"),
        ("BatchNormalization", "InstanceNormalization", "GroupNormalization", "LayerNormalization"),
        "variance-by-squares",
        lambda case: bool(case.offset) or _is_constant(case),
    ),
    Defect(
        ("paddle",),
        ("BatchNormalization",),
        "one-value-a-channel",
        lambda case: case.inputs[0].shape[1:2] == (case.inputs[0].size,),
    ),
    Defect(
        ("mnn", "tvm"),
        ("MeanVarianceNormalization",),
        "leaves-1e-9-out",
        lambda case: _least_std(case) <= 1e-6,
    ),
    Defect(
        ("mnn", "tract", "tinygrad"),
        ("LpNormalization",),
        "zero-over-zero",
        lambda case: not case.inputs[0].any(-1).all(),
    ),
    Defect(
        ("flax", "keras"),
        ("BatchNormalization",),
        "nan-for-an-empty-batch",
        lambda case: case.kind == GRADIENTS and case.inputs[0].size == 0,
    ),
    # several runtimes
    Defect(
        ("torch", "openvino", "opencv", "paddle"),
        ("LpNormalization",),
        "divides-by-at-least",
        lambda case: 0 < _largest(case) < 1e-13,
    ),
    Defect(
        ("onnxruntime", "reference", "tract", "mnn", "opencv", "openvino", "tinygrad"),
        ("LpNormalization",),
        "squares-underflow",
        lambda case: 0 < _largest(case) < 1e-20,
    ),
    Defect(
        OTHERS,
        ("BatchNormalization", "InstanceNormalization", "GroupNormalization", "LayerNormalization", "RMSNormalization",
         "MeanVarianceNormalization", "LpNormalization"),
        "squares-overflow",
        lambda case: _largest(case) > 1e19,
    ),
    Defect(
        ("onnxruntime", "reference"),
        ("GroupNormalization",),
        "variance-by-squares",
        lambda case: bool(case.offset) or _is_constant(case),
    ),
    Defect(
        ("reference", "tract", "tvm", "tinygrad"),
        ("MeanVarianceNormalization",),
        "variance-by-squares",
        lambda case: bool(case.offset) or _is_constant(case),
    ),
    Defect(
        OTHERS,
        ("BatchNormalization", "InstanceNormalization", "GroupNormalization", "LayerNormalization"),
        "rounds-the-mean-of-equal-values",
        _is_constant,
    ),
)  # fmt: skip


def explanation(runtime: str, case: Case, said: str) -> Defect | None:
    """Return the first known defect that explains why the runtime's result for this case is wrong.

    Return None if there is no such defect.
    """
    for defect in KNOWN:
        asked = runtime in defect.runtimes and case.operator in defect.operators
        if asked and defect.says in said and defect.matches(case):
            return defect
    return None
