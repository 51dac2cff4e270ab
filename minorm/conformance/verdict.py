"""Judge a runtime's result against the formula: right or wrong.

The error is the largest |difference| / max(1, max |expected|) of all outputs. A result is right if the error is within
the bound that minorm also uses to verify an export. A result is also right if the rounding of the mean alone explains
the error. At an offset of 1e6 standard deviations, a mean in float32 has an error of 0.03 standard deviations, and a
sum makes this error a few times larger. So even a correct implementation that subtracts this mean has such an error.
The digits show how much better an implementation can be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minorm.conformance import defects, formula, framework_formula
from minorm.conformance.case import GRADIENTS, Case
from minorm.conformance.runtime_calls import Outcome
from minorm.devices import dtypes
from minorm.onnx.checking.verification import TOLERANCE, difference_of

RIGHT, WRONG, UNSUPPORTED = "right", "wrong", "unsupported"
DIGITS = {dtypes.float64: 15.9, dtypes.float32: 7.2, dtypes.float16: 3.3, dtypes.bfloat16: 2.4}
STASHED = ("LayerNormalization", "RMSNormalization", "GroupNormalization")  # compute in stash_type, by default float32


@dataclass(frozen=True)
class Cell:
    """Holds the verdict on the result of a runtime for a case.

    type      the element type of the data
    error     the error that the module's docstring defines; None if nothing was compared
    digits    the number of right digits, at most the type's digits; None unless the verdict is "right"
    said      a text that says why the case is unsupported or the result is wrong
    defect    the known defect that explains a wrong result
    cause     the name of the defect's page in docs/conformance/
    """

    operator: str
    opset: int
    case: str
    runtime: str
    verdict: str
    type: str = "float32"
    error: float | None = None
    digits: float | None = None
    said: str = ""
    defect: str = ""
    cause: str = ""


def judge(case: Case, runtime: str, outcome: Outcome) -> Cell:
    """Judge the outcome of a case on a runtime. Return the verdict as a Cell."""
    verdict, error, digits, said = _verdict(case, outcome)
    defect = defects.explanation(runtime, case, said) if verdict == WRONG else None
    text, cause = ("", "") if defect is None else (defect.text, defect.cause)
    dtype = str(case.inputs[0].dtype)
    return Cell(case.operator, case.opset, case.name, runtime, verdict, dtype, error, digits, said, text, cause)


def _verdict(case: Case, outcome: Outcome) -> tuple[str, float | None, float | None, str]:
    if outcome.kind in ("absent", "refused"):
        return UNSUPPORTED, None, None, outcome.text
    if outcome.kind == "died":
        return WRONG, None, None, outcome.text
    due = framework_formula.due(case)
    wanted = [(name, *due[place]) for place, name in case.wanted]
    if len(outcome.arrays) != len(wanted):
        return WRONG, None, None, f"{len(outcome.arrays)} outputs; expected {len(wanted)}"
    worst = Worst()
    for (name, value, dtype), got in zip(wanted, outcome.arrays, strict=True):
        if value is None:
            continue
        if got.shape != value.shape or got.dtype != dtype:
            return WRONG, None, None, f"{name} is {got.dtype}{got.shape}; expected {dtype}{value.shape}"
        worst = worst.or_worse(_compared(case, name, got, value, dtype))
    if outcome.overwrote:
        return WRONG, _number(worst.error), None, f"it overwrote its inputs {', '.join(map(str, outcome.overwrote))}"
    if not worst.share <= 1:
        finite = math.isfinite(worst.error)
        how = f"is off by {worst.error:.2g}" if finite else "holds NaN or infinity instead of numbers"
        return WRONG, _number(worst.error), None, f"{worst.name} {how}"
    return RIGHT, worst.error, worst.digits, ""


@dataclass(frozen=True)
class Worst:
    """Describes the output with the largest share of several outputs.

    `share` is the output's error divided by the allowed error.
    """

    name: str = "y"
    error: float = 0.0
    share: float = 0.0
    digits: float = 15.9

    def or_worse(self, other: Worst) -> Worst:
        """Combine two outputs.

        Return the name, error and share of the output with the larger share, and the smaller number of digits.
        """
        worse = self if self.share > other.share else other
        return Worst(worse.name, worse.error, worse.share, min(self.digits, other.digits))


def _compared(case: Case, name: str, got: Any, value: Any, dtype: Any) -> Worst:
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = value.astype(dtype)
        value = np.where(np.isinf(rounded.astype(np.float64)), rounded.astype(np.float64), value)  # beyond the type
        difference, scale = difference_of(got, value)
    error = difference / scale
    share = error / allowed(case, dtype) if not math.isnan(error) else math.inf
    digits = min(DIGITS[dtype], -math.log10(error)) if error > 0 else DIGITS[dtype]
    return Worst(name, error if not math.isnan(error) else math.inf, share, max(0.0, digits))


def allowed(case: Case, dtype: Any) -> float:
    """Return the largest error that an output in `dtype` may have to count as right."""
    stash = formula.STASH[case.get("stash_type", 1)] if case.operator in STASHED else dtype
    coarser = dtypes.float32 if dtype == dtypes.float64 and stash != dtypes.float64 else dtype
    computed = dtypes.compute_type(coarser)
    roundings = 4 if case.kind == GRADIENTS else 1  # a sum of dy * xhat has a larger error than a single xhat
    return TOLERANCE[coarser] + roundings * float(np.finfo(computed).eps) * case.offset


def _number(error: float) -> float | None:
    """Replace infinity by None, because JSON does not have infinity."""
    return error if math.isfinite(error) else None


def counted(cells: Sequence[Cell]) -> tuple[int, int, int, float | None]:
    """Return the numbers of right, wrong and unsupported cells, and the fewest digits of right float32 cells."""
    numbers = [sum(cell.verdict == verdict for cell in cells) for verdict in (RIGHT, WRONG, UNSUPPORTED)]
    digits = [cell.digits for cell in cells if cell.digits is not None and cell.type == "float32"]
    return numbers[0], numbers[1], numbers[2], min(digits, default=None)
