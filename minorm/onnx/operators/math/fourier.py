"""Read and write DFT, a discrete Fourier transform along an axis, and STFT, which transforms windows of a signal.

The last axis holds a complex number as two floats, or a real number as one float. From 20 on, the axis of DFT is an
input.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import lowers, reads, writes
from minorm.ops.operands import axis_of
from minorm.ops.special import Fourier
from minorm.tensor.combining import cat, pad, stack
from minorm.tensor.tensor import Tensor


@reads("DFT", since=17, fixed=(1,))
def read_dft_17(node: Node) -> Callable[..., Tensor]:
    transform = _transform(node)
    return lambda x, length=None: transform(x, length, node["axis"])


@reads("DFT", since=20, fixed=(1, 2))
def read_dft_20(node: Node) -> Callable[..., Tensor]:
    transform = _transform(node)
    return lambda x, length=None, axis=None: transform(x, length, -2 if axis is None else int(axis.item()))


def _transform(node: Node) -> Callable[[Tensor, Tensor | None, int], Tensor]:
    inverse, onesided = bool(node["inverse"]), bool(node["onesided"])

    def transform(x: Tensor, length: Tensor | None, axis: int) -> Tensor:
        place = axis_of("DFT", axis, x)
        if place == x.ndim - 1 or x.shape[-1] not in (1, 2):
            raise ValueError(
                f"x has shape {x.shape}, axis is {axis}; expected a last axis of length 1 or 2, and an axis before "
                "the last axis"
            )
        halved = inverse and onesided
        n = (2 * (x.shape[place] - 1) if halved else x.shape[place]) if length is None else int(length.item())
        if n < 1:
            raise ValueError(f"dft_length is {n}; expected at least 1")
        node.fits((*x.shape[:place], n, *x.shape[place + 1 : -1], 2), x.dtype)
        node.check_work(x.numel() // max(1, x.shape[place]), n, 4 * n.bit_length())
        z = _fitted(_complex(x), place, n // 2 + 1 if halved else n)
        if halved:  # the half that is left out mirrors the other half, and the result is real
            rest = z.narrow(place, 1, n - n // 2 - 1).flip(place)
            z = cat([z, stack([rest[..., 0], -rest[..., 1]], -1)], place)
            return Fourier.apply(z, axis=place, inverse=True)[..., :1]
        y = Fourier.apply(z, axis=place, inverse=inverse)
        return y.narrow(place, 0, n // 2 + 1) if onesided else y

    return transform


@reads("STFT", since=17, fixed=(1, 3))
def read_stft(node: Node) -> Callable[..., Tensor]:
    """Transform signals of shape (batch, n) or (batch, n, 1 or 2); the result is (batch, frames, frequencies, 2)."""
    onesided = bool(node["onesided"])

    def transform(x: Tensor, step: Tensor, window: Tensor | None = None, length: Tensor | None = None) -> Tensor:
        signal = x.unsqueeze(-1) if x.ndim == 2 else x
        if signal.ndim != 3 or signal.shape[-1] not in (1, 2) or (window is not None and window.ndim != 1):
            raise ValueError(
                f"signal has shape {x.shape}, window {None if window is None else window.shape}; expected a signal "
                "(batch, n) or (batch, n, 1 or 2), and a window with one axis"
            )
        hop = int(step.item())
        n = int(length.item()) if length is not None else len(window) if window is not None else signal.shape[1]
        seen = n if window is None else len(window)
        if not (hop >= 1 and 1 <= seen <= n <= signal.shape[1]):
            raise ValueError(
                f"frame_step is {hop}, frame_length {n}, the window has {seen} elements; expected frame_step >= 1 and "
                f"window length <= frame_length <= signal length, which is {signal.shape[1]}"
            )
        frames = 1 + (signal.shape[1] - n) // hop
        node.fits((signal.shape[0], frames, n, 2), x.dtype)
        node.check_work(signal.shape[0] * frames, n, 4 * n.bit_length())
        places = np.arange(frames)[:, None] * hop + np.arange(seen)
        pieces = signal[:, places.reshape(-1)].reshape(signal.shape[0], frames, seen, signal.shape[-1])
        if window is not None:
            pieces = pieces * window.to(x.dtype).unsqueeze(-1)
        y = Fourier.apply(_fitted(_complex(pieces), 2, n), axis=2, inverse=False)
        return y.narrow(2, 0, n // 2 + 1) if onesided else y

    return transform


def _complex(x: Tensor) -> Tensor:
    """Return x with an imaginary part of 0 if its numbers are real."""
    return pad(x, [0, 1]) if x.shape[-1] == 1 else x


def _fitted(x: Tensor, axis: int, n: int) -> Tensor:
    """Return x with n elements along an axis; elements at the end are cut off, or zeros are added."""
    missing = n - x.shape[axis]
    return x.narrow(axis, 0, n) if missing <= 0 else pad(x, [0, 0] * (x.ndim - 1 - axis) + [0, missing])


@writes(Fourier, "DFT", since=20)
def write_fourier_20(g: Graph, x: Value, axis: int, inverse: bool) -> Value:
    place = g.constant(axis, np.int64, "axis")
    return g.add("DFT", x, None, place, shape=x.known_shape, inverse=int(inverse))


@writes(Fourier, "DFT", since=17)
def write_fourier_17(g: Graph, x: Value, axis: int, inverse: bool) -> Value:
    return g.add("DFT", x, shape=x.known_shape, axis=axis, inverse=int(inverse))


@lowers(Fourier)
def lower_fourier(g: Graph, x: Value, axis: int, inverse: bool) -> Value:
    raise RuleNotApplicable("DFT exists from opset 17 on")
