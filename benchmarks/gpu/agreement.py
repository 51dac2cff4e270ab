"""Are the results on the device right? Every case against float64, into poisoned memory, twice with the same bits."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import minorm as mn
from benchmarks.gpu.cases import Case, arrays, expected, forward, tensors

# Relative L2 errors: of the rounding of a result to its type, and of sums in the type computed in.
BOUNDS = {"float64": 1e-12, "float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3}
OFFSET = 3.0


class Verdict(NamedTuple):
    """The worst error of a case, as a share of what is allowed, and whether a second run gave the same bits."""

    case: Case
    worst: str
    share: float
    repeats: bool

    @property
    def passed(self) -> bool:
        return self.share <= 1 and self.repeats


def results(case: Case, given: dict[str, np.ndarray], device: str) -> dict[str, Any]:
    """y and the gradients, computed on the device."""
    t = tensors(given, device)
    y = forward(case, t)()
    y.backward(t["dy"].to(y.dtype))
    found = {"y": y, "dx": t["x"].grad, "dscale": t["scale"].grad, "dbias": t["bias"].grad}
    return {name: value.detach().cpu().numpy() for name, value in found.items() if value is not None}


def poison(device: str, count: int) -> None:
    """Leave NaN in the memory that the next results are put into."""
    for _ in range(4):
        block = mn.full((count + 1024,), float("nan"), dtype=mn.float64, device=device)
        del block


def judge(case: Case, device: str = "cuda") -> Verdict:
    """Run a case twice and compare it with the formula."""
    given = arrays(case, OFFSET)
    exact = expected(case, given)
    runs = []
    for _ in range(2):
        poison(device, given["x"].size)
        runs.append(results(case, given, device))
    shares = {}
    for name, value in exact.items():
        error = np.linalg.norm(runs[0][name].astype(np.float64) - value) / max(1e-6, np.linalg.norm(value))
        shares[name] = float(error) / BOUNDS[case.dtype] if np.isfinite(error) else float("inf")
    worst = max(shares, key=lambda name: shares[name])
    same = all(runs[0][name].tobytes() == runs[1][name].tobytes() for name in exact)
    return Verdict(case, worst, shares[worst], same)
