"""Uses a student's moments in minorm's layers, to check the kernels of labs 7 and 8."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import minorm.functional as F
from minorm.kernels.partial import PartialBackend
from minorm.kernels.reference.norm import four
from minorm.labs.comparing import close, true
from minorm.tensor.creation import tensor


def _run(layer: str, x: Any, backend: Any) -> Any:
    """Run a layer of minorm on x with this backend, and return y."""
    if layer.startswith("channels-last"):
        x = np.moveaxis(np.moveaxis(x, 1, -1).copy(), -1, 1)
    if layer == "layer_norm":
        return F.layer_norm(tensor(x), x.shape[1:], backend=backend).array
    if layer == "rms_norm":
        return F.rms_norm(tensor(x), x.shape[1:], eps=1e-5, backend=backend).array
    return F.batch_norm(tensor(x), None, None, training=True, backend=backend).array


def check_moments(
    student: Any, rng: np.random.Generator, layer: str, shape: tuple[int, ...], offset: float, bound: float
) -> None:
    """Run a layer with the student's moments in float32.

    Raise Wrong unless y is within `bound` of minorm's y in float64.
    """
    x = (rng.standard_normal(shape) * 3 + offset).astype(np.float32)
    expected = _run(layer, x.astype(np.float64), None)
    what = f"y of {layer} with your moments, x of shape {shape}"
    got = _run(layer, x, PartialBackend(moments=student.moments))
    close(got, expected, what, rtol=bound, atol=bound, dtype=np.float32)


def check_moments_follow(
    student: Any, rng: np.random.Generator, layers: Sequence[str], kernel: str, change: Callable[[str], str],
    bound: float,
) -> None:  # fmt: skip
    """Raise Wrong unless layers with student.moments take their statistics from the student's kernel.

    `change` changes the kernel's text so that the kernel returns 4 var + 1 in place of var. Then y must change as well.
    A notebook cannot compile its kernels again, so nothing is checked there.
    """
    if not student.compiles_again:
        return
    x = (rng.standard_normal((3, 4, 5)) * 3 + 1).astype(np.float32)
    with student.with_changed_kernels(change):
        found = {layer: _run(layer, x, PartialBackend(moments=student.moments)) for layer in layers}
    for layer, got in found.items():
        what = f"y of {layer} with your moments, after the judge made {kernel} return 4 var + 1"
        before = _run(layer, x.astype(np.float64), None)
        true(
            not np.allclose(got, before, rtol=bound, atol=bound),
            what, f"another y, as the statistics must come from {kernel}", "the same y",
        )  # fmt: skip
        expected = _run(layer, x.astype(np.float64), PartialBackend(moments=_with_larger_variances))
        close(got, expected, what, rtol=bound, atol=bound)


def _with_larger_variances(nest: Any, x: Any, centered: bool) -> tuple[Any, Any, Any]:
    """Return k, d and var of every row as a kernel does that returns 4 var + 1 in place of var."""
    rows = four(nest, x).reshape(nest.rows, -1)
    mean, var = rows.mean(1), 4 * rows.var(1) + 1
    return (mean, 0 * mean, var) if centered else (0 * mean, 0 * mean, var + mean**2)
