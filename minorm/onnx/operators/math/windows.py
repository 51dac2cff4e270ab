"""Read HannWindow, HammingWindow, BlackmanWindow and MelWeightMatrix: the weights for spectra of sound."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import EVERY, Rule, reads
from minorm.onnx.graph.tensors import element_type
from minorm.tensor.tensor import Tensor

# The weights of cos(0), cos(w), cos(2 w) ...; w goes through one full turn in the window.
WINDOWS = {
    "HannWindow": (0.5, -0.5),
    "HammingWindow": (25 / 46, -21 / 46),
    "BlackmanWindow": (0.42, -0.5, 0.08),
}


def _reader(weights: tuple[float, ...]) -> Rule:
    def read(node: Node) -> Callable[[Tensor], Tensor]:
        dtype, periodic = element_type(node["output_datatype"], "output_datatype"), bool(node["periodic"])

        def window(size: Tensor) -> Tensor:
            n = _one("size", size)
            node.fits((n,), dtypes.float64)
            angle = 2 * np.pi * np.arange(n) / max(1, n if periodic else n - 1)
            waves = [w * np.cos(k * angle) for k, w in enumerate(weights)]
            return Tensor(np.sum(waves, 0).astype(dtype))

        return window

    return read


for _operator, _weights in WINDOWS.items():
    reads(_operator, since=17, fixed=EVERY)(_reader(_weights))


@reads("MelWeightMatrix", since=17, fixed=EVERY)
def read_mel(node: Node) -> Callable[..., Tensor]:
    """Make the matrix (frequencies, bands); each band is a triangle; all bands are equally wide on the mel scale."""
    dtype = element_type(node["output_datatype"], "output_datatype")

    def mel(bands: Tensor, length: Tensor, rate: Tensor, low: Tensor, high: Tensor) -> Tensor:
        count, n, samples = _one("num_mel_bins", bands), _one("dft_length", length), _one("sample_rate", rate)
        ends = [float(x.item()) for x in (low, high)]
        if samples < 1 or not all(math.isfinite(f) and f > -700 for f in ends):
            raise ValueError(
                f"sample_rate is {samples}, the edges are {ends} Hz; expected sample_rate >= 1 and finite edges above "
                "-700 Hz"
            )
        node.fits((n // 2 + 1, count + 2), dtypes.float64)
        first, last = (2595 * math.log10(1 + f / 700) for f in ends)
        on_scale = first + np.arange(count + 2) * ((last - first) / (count + 2))
        corners = ((n + 1) * (700 * np.expm1(on_scale / 2595 * math.log(10))) // samples).astype(np.int64)
        return Tensor(_triangles(np.arange(n // 2 + 1)[:, None], corners).astype(dtype))

    return mel


def _triangles(place: Any, corners: Any) -> Any:
    """Compute triangles: each rises from 0 at corners[i] to 1 at corners[i + 1], then falls to 0 at corners[i + 2]."""
    left, middle, right = corners[:-2], corners[1:-1], corners[2:]
    rising = np.where(left == middle, 1.0, (place - left) / np.maximum(1, middle - left))
    falling = (right - place) / np.maximum(1, right - middle)
    up, down = (place >= left) & (place <= middle), (place >= middle) & (place < right)
    return np.where(down, falling, np.where(up, rising, 0.0))


def _one(name: str, x: Tensor) -> int:
    """Return x as an int; raise ValueError unless x is one number >= 0."""
    if x.numel() != 1 or x.item() < 0:
        raise ValueError(f"{name} is {x.item() if x.numel() == 1 else x.shape}; expected one number of at least 0")
    return int(x.item())
