"""The causes of differences between runtimes and the formula; each has a name, a sentence and a minimal case.

`python -m minorm.conformance.cause_pages docs/conformance` writes a page and a file for each cause.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from minorm.conformance.batch_norm_cases import BATCH_NORM_OUTPUTS
from minorm.conformance.case import GRADIENTS, Case
from minorm.devices.dtypes import bfloat16, float16, float32, float64


@dataclass(frozen=True)
class Cause:
    """Describes an error: `text` continues a sentence that begins with the runtime's name; `case` shows the error."""

    name: str
    text: str
    case: Case


def _f(*values: Any, dtype: Any = float32) -> Any:
    return np.array(values, dtype)


_ROWS = _f([1, 2], [3, 6])  # two samples of two channels, or two rows
_ONE, _TWO = (_f(1), _f(0)), (_f(1, 1), _f(0, 0))  # (scale, bias) for 1 and for 2 channels
_NOTHING = np.zeros((0, 2), np.float32)  # an empty batch
_STORED = (*_TWO, _f(0.5, 0.5), _f(4, 4))  # scale, bias, and statistics that differ from the batch's


def _batch(
    x: Any,
    opset: int = 15,
    inputs: tuple[Any, ...] = _STORED,
    outputs: tuple[str, ...] = (),
    fetched: int | None = None,
    held: tuple[int, ...] = (1, 2, 3, 4),
    **attributes: Any,
) -> Case:
    """Make a case of BatchNormalization.

    By default, the outputs are y alone in inference, and y and the running statistics in training.
    """
    outputs = outputs or (BATCH_NORM_OUTPUTS[:3] if attributes.get("training_mode") else ("y",))
    return Case("BatchNormalization", opset, "", (x, *inputs), attributes, outputs, fetched, held)


def _other(operator: str, opset: int, *inputs: Any, outputs: tuple[str, ...] = ("y",), **attributes: Any) -> Case:
    return Case(operator, opset, "", inputs, attributes, outputs, held=tuple(range(1, len(inputs))))


def _with_offset(case: Case) -> Case:
    """Compute the offset of the case, |mean| / standard deviation of its data. Return the case with this offset."""
    x = case.inputs[0].astype(np.float64)
    return dataclasses.replace(case, offset=float(abs(x.mean()) / x.std()))


_ALL = (
    Cause(
        "overwrites-running-statistics",
        "overwrites the caller's arrays with the new running statistics if these outputs are not fetched",
        _batch(_ROWS, training_mode=1, fetched=1, held=(1, 2)),
    ),
    Cause(
        "merges-equal-initializers",
        "merges equal initializers (in a fresh layer scale equals var, and B equals mean), then updates them in place",
        _batch(_ROWS, inputs=(_f(1, 1), _f(0, 0), _f(0, 0), _f(1, 1)), training_mode=1, fetched=1),
    ),
    Cause(
        "inverse-for-variance",
        "returns 1 / std instead of the variance that the specification asks for",
        _batch(_ROWS, 9, outputs=BATCH_NORM_OUTPUTS, held=()),
    ),
    Cause(
        "leaves-1e-9-out",
        "leaves out the 1e-9 of the specification, so equal values give 0 / 0, and small values give another result",
        _other("MeanVarianceNormalization", 13, _f([[[2, 2]]]), axes=[3]),
    ),
    Cause(
        "blends-statistics",
        "normalizes with a blend of the stored statistics and those of the batch if only y is fetched",
        _batch(_ROWS, 9, outputs=BATCH_NORM_OUTPUTS, fetched=1),
    ),
    Cause(
        "type-of-x-for-all",
        "returns all outputs in the type of x, instead of each output's own type",
        _other("LayerNormalization", 17, _f([1, 3], dtype=float16), *(p.astype(float16) for p in _TWO),
               outputs=("y", "mean", "inverse")),
    ),
    Cause("sums-x", "adds up x instead of |x|", _other("LpNormalization", 22, _f([-3, 4]), p=1)),
    Cause(
        "window-over-samples",
        "takes its window over neighbouring samples instead of neighbouring channels",
        _other("LRN", 13, _f([[[1]], [[2]], [[3]]]), size=3, alpha=3.0, beta=1.0),
    ),
    Cause(
        "computes-in-16-bits",
        "computes in 16 bits if the input has 16 bits",
        _other("LpNormalization", 22, _f([300, 400], dtype=float16)),
    ),
    Cause(
        "knows-no-training",
        "ignores training mode: it normalizes with the stored statistics, without an error or a warning",
        _batch(_ROWS, training_mode=1, fetched=1),
    ),
    Cause(
        "training-of-old-versions",
        "ignores training mode in versions 1 and 6: it normalizes with the stored statistics, without an error or a "
        "warning",
        _batch(_ROWS, 6, outputs=BATCH_NORM_OUTPUTS, fetched=1),
    ),
    Cause(
        "momentum-the-other-way",
        "uses momentum as the share of the new statistics; in the specification momentum is the share of the old "
        "statistics",
        _batch(_ROWS, training_mode=1),
    ),
    Cause(
        "float32-for-float16",
        "returns float32 although the file says float16",
        _other("InstanceNormalization", 6, _f([[[1, 3]]], dtype=float16), *(p.astype(float16) for p in _ONE)),
    ),
    Cause(
        "reads-float64-as-float32",
        "reads the bytes of float64 as if they were float32",
        _other("LayerNormalization", 17, _f([1, 3], dtype=float64), *(p.astype(float64) for p in _TWO)),
    ),
    Cause(
        "computes-float64-in-float32",
        "computes float64 inputs in float32",
        _other("InstanceNormalization", 6, _f([[[1, 2, 4]]], dtype=float64), *(p.astype(float64) for p in _ONE)),
    ),
    Cause(
        "no-axis-of-channels",
        "crashes, reads foreign memory or returns a wrong shape if x has no channel axis",
        _batch(_f(1, 2, 4), inputs=(_f(1), _f(0), _f(0.5), _f(4))),
    ),
    Cause(
        "ignores-spatial",
        "ignores spatial=0, and does not use separate statistics for each position",
        _batch(_f([[1, 3]], [[2, 4]]), 7, spatial=0,
               inputs=(_f([1, 2]), _f([0, 1]), _f([0.5, 1.5]), _f([4, 1]))),
    ),
    Cause(
        "window-the-other-way",
        "takes the extra channel of an even window below the centre, although the specification says above",
        _other("LRN", 13, _f([[[1]], [[2]], [[3]]]), size=2, alpha=2.0, beta=1.0),
    ),
    Cause(
        "variance-by-squares",
        "computes the variance as E[x^2] - E[x]^2, which loses its digits if the mean is large",
        _with_offset(_other("GroupNormalization", 21, _f([[1e4 + 1, 1e4 + 2, 1e4 + 4]]), *_ONE, num_groups=1)),
    ),
    Cause(
        "wider-type-of-y",
        "returns y in the type of x or of the parameters, whichever is wider",
        _batch(_ROWS.astype(float16)),
    ),
    Cause(
        "one-value-a-channel",
        "returns x unchanged if a channel has only one value",
        _batch(_f([2, 5]), training_mode=1),
    ),
    Cause("zero-over-zero", "computes 0 / 0 for a row of zeros", _other("LpNormalization", 22, _f([0, 0], [3, 4]))),
    Cause(
        "divides-by-at-least",
        "divides by at least a small number (1e-12 in PyTorch), so tiny rows are not normalized",
        _other("LpNormalization", 22, _f([3e-25, 4e-25])),
    ),
    Cause(
        "squares-underflow",
        "lets squares underflow float32, though the correct result is an ordinary number",
        _other("LpNormalization", 22, _f([6e-25, 8e-25])),
    ),
    Cause(
        "squares-overflow",
        "lets squares overflow float32, though the correct result is an ordinary number",
        _other("LayerNormalization", 17, _f([1e20, 2e20, 4e20]), _f(1, 1, 1), _f(0, 0, 0)),
    ),
    Cause(
        "rounds-the-mean-of-equal-values",
        "rounds the sum of equal values, so their mean differs from the values",
        _other("InstanceNormalization", 6, np.full((1, 1, 11), 12345.678, np.float32), *_ONE),
    ),
    Cause(
        "nan-for-an-empty-batch",
        "returns NaN instead of 0 as the gradient of scale if the batch is empty",
        dataclasses.replace(_batch(_NOTHING, training_mode=1, fetched=1), kind=GRADIENTS, beside=_NOTHING),
    ),
    Cause(
        "lacks-mean-and-inverse",
        "does not return the outputs mean and 1 / std that the file asks for",
        _other("LayerNormalization", 17, _f([1, 3]), *_TWO, outputs=("y", "mean", "inverse")),
    ),
    Cause(
        "scale-of-each-group",
        "applies the scale and bias per group of version 18 to single channels, and leaves the remaining channels as "
        "they are",
        _other("GroupNormalization", 18, _f([[[1, 2]], [[3, 5]], [[4, 4]], [[0, 6]]]).reshape(1, 4, 2),
               _f(1, 2), _f(0, 1), num_groups=2),
    ),
    Cause(
        "several-axes",
        "does not normalize over several axes as the file says, or uses only one row of a scale that has several rows",
        _other("LayerNormalization", 17, _f([[1, 2], [4, 8]]), _f([1, 2], [3, 4]), _f([0, 0], [0, 0]), axis=1),
    ),
    Cause(
        "crashes-on-16-bits",
        "crashes on bfloat16, and on float16 with float32 statistics",
        _other("InstanceNormalization", 22, _f([[[1, 3]]], dtype=bfloat16), *(p.astype(bfloat16) for p in _ONE)),
    ),
)  # fmt: skip
CAUSES = {cause.name: cause for cause in _ALL}
