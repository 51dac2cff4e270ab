"""Uses a student's moments in minorm's layers, to check the kernels of labs 7 and 8."""

from __future__ import annotations

from typing import Any

import numpy as np

import minorm.functional as F
from minorm.kernels.partial import PartialBackend
from minorm.labs.comparing import close
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
