"""Read and write Resize and Upsample: along each axis, by a matrix product (linear, cubic) or by a selection of
elements (nearest).

Element i of the result is computed at a coordinate x of the input (`coordinates`). The element is a sum of the input
elements j near x with the weights kernel(j - x). All weights form a matrix of shape (`resized`, `length`), whose rows
add up to one. Elements beyond the ends equal the elements at the ends; exclude_outside leaves out these elements.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.functional.resizing import interpolate
from minorm.onnx.graph.errors import RuleNotApplicable, Unsupported
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.reading import Node, integers
from minorm.onnx.graph.registry import reads, writes
from minorm.onnx.graph.sizes import Length
from minorm.onnx.graph.tensors import MAX_RANK
from minorm.ops.operands import axes_of
from minorm.ops.resizing import ROUNDINGS, coordinates, matrix, reach
from minorm.tensor.combining import where
from minorm.tensor.tensor import Tensor

SMALL = 1 << 18  # a matrix of at most this many elements is kept for the next run
COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)


def _up(x: Any) -> Any:
    """Round up, for version 10.

    The text of version 10 does not define the rounding, but its node test and onnxruntime round up if an axis shrinks.
    """
    return np.ceil(x)


def scaled(n: int, scale: float | np.floating[Any]) -> int:
    """Return the length that n elements have after scaling.

    This length is computed in float32, as in runtimes: 5 times float32(2.6) is 13.
    """
    return math.floor(np.float32(n) * np.float32(scale))


class Sampling:
    """Resamples an axis with the options that the attributes of a node give."""

    def __init__(self, node: Node) -> None:
        resize = node.operator == "Resize" and node.since >= 11
        self.node = node
        self.mode = {"bilinear": "linear"}.get(node["mode"], node["mode"])
        self.kind = node.get("coordinate_transformation_mode", "asymmetric")
        self.rounding = node["nearest_mode"] if resize else "floor"
        self.shrinks_up = node.operator == "Resize" and not resize
        self.a = node.get("cubic_coeff_a", -0.75)
        self.exclude_outside = bool(node.get("exclude_outside", 0))
        self.antialias = bool(node.get("antialias", 0))
        self.outside = float(node.get("extrapolation_value", 0.0))
        self.policy = node.get("keep_aspect_ratio_policy", "stretch")
        self.axes = node.get("axes", None)
        for name, value, known in (
            ("mode", self.mode, ("nearest", "linear", "cubic")),
            ("coordinate_transformation_mode", self.kind, COORDINATES),
            ("nearest_mode", self.rounding, ROUNDINGS),
            ("keep_aspect_ratio_policy", self.policy, ("stretch", "not_larger", "not_smaller")),
        ):
            if value not in known:
                raise Unsupported(f"{name} is {value!r}; minorm reads {', '.join(known)}")
        self.coordinates = functools.partial(coordinates, self.kind)
        self.weights = functools.partial(
            _weights, self.coordinates, self.mode, self.a, self.antialias, self.exclude_outside
        )
        # a function and not a method, which would make a cycle that keeps the node alive
        self.kept = functools.lru_cache(maxsize=16)(self.weights)

    def resize(self, x: Tensor, scales: Sequence[float], sizes: Sequence[int] | None, roi: Sequence[float]) -> Tensor:
        """Resize the axes of x to the lengths in `sizes`; if `sizes` is None, `scales` gives the lengths."""
        axes = tuple(range(x.ndim)) if self.axes is None else axes_of("resize", tuple(self.axes), x)
        if len(sizes or scales) != len(axes) or (self.kind == "tf_crop_and_resize" and len(roi) != 2 * len(axes)):
            raise ValueError(f"scales, sizes or roi has a wrong length; expected a number for each of axes {axes}")
        if sizes is None:
            if not all(s > 0 and math.isfinite(s) for s in scales):
                raise ValueError(f"scales is {list(scales)}; expected numbers above 0")
            sizes = [scaled(x.shape[axis], s) for axis, s in zip(axes, scales, strict=True)]
        else:
            sizes, scales = self._sizes(x, axes, sizes)
        shape = list(x.shape)
        for axis, m in zip(axes, sizes, strict=True):
            if min(m, x.shape[axis]) < 1 and m != x.shape[axis]:
                raise ValueError(
                    f"axis {axis} of length {x.shape[axis]} would get length {m}; expected at least 1 for both lengths"
                )
            shape[axis] = m
            self.node.fits((m, 4), dtypes.float64)  # the coordinates, and arrays computed from them
        self.node.fits(shape, x.dtype)
        crops, beyond = self.kind == "tf_crop_and_resize", np.zeros((), np.bool_)
        compute = dtypes.compute_type(x.dtype) if dtypes.is_float(x.dtype) else dtypes.float64
        y = x if self.mode == "nearest" else x.to(compute)
        for i, (axis, m, scale) in enumerate(zip(axes, sizes, scales, strict=True)):
            n = x.shape[axis]
            region = (roi[i], roi[i + len(axes)]) if crops else (0.0, 1.0)
            if n and (crops or (m, scale) != (n, 1)):  # other axes, such as batch or channels, are unchanged
                y = self._along(y, axis, n, m, scale, region)
            if crops:
                at = self.coordinates(n, m, scale, *region)
                beyond = beyond | ((at < 0) | (at > n - 1)).reshape(-1, *(1,) * (x.ndim - axis - 1))
        if np.any(beyond):
            y = where(Tensor(np.broadcast_to(beyond, y.shape)).to(y.device), self.outside, y)
        return y.to(x.dtype)

    def _sizes(self, x: Tensor, axes: Sequence[int], sizes: Sequence[int]) -> tuple[Sequence[int], Sequence[float]]:
        lengths = [max(1, x.shape[axis]) for axis in axes]
        scales = [m / n for n, m in zip(lengths, sizes, strict=True)]
        if self.policy == "stretch":
            return sizes, scales
        scale = min(scales) if self.policy == "not_larger" else max(scales)
        return [math.floor(scale * n + 0.5) for n in lengths], [scale] * len(axes)

    def _along(self, x: Tensor, axis: int, n: int, m: int, scale: float, region: tuple[float, float]) -> Tensor:
        if self.mode == "nearest":
            # In float32, as runtimes do: 1.5 / float32(0.6) is 2.5 there, so that an intended half is exact.
            at = self.coordinates(n, m, scale, *region, dtype=np.float32 if max(n, m) < 1 << 22 else np.float64)
            rounding = _up if self.shrinks_up and scale < 1 else ROUNDINGS[self.rounding]
            return x[(*(slice(None),) * axis, rounding(at).astype(np.intp).clip(0, n - 1))]
        span = reach(self.mode, scale, self.antialias)
        self.node.fits((m, 2 * n + 2 * span * 6), dtypes.float64)  # room for the matrix twice, distances and weights
        self.node.check_work(x.numel(), m)
        key = n, m, scale, region, x.dtype
        weights = Tensor((self.kept if m * n <= SMALL else self.weights)(*key)).to(x.device)
        self.node.fits((*x.shape[:axis], *x.shape[axis + 1 :], n + 2 * m), x.dtype)  # x in its order, and the result
        return (x.transpose(axis, -1) @ weights).transpose(axis, -1)


def _weights(
    places: Callable[..., Any],
    mode: str,
    a: float,
    antialias: bool,
    exclude_outside: bool,
    n: int,
    m: int,
    scale: float,
    region: tuple[float, float],
    dtype: Any,
) -> Any:
    """Return a matrix of shape (n, m): the weights of n elements in m results."""
    rows = matrix(mode, places(n, m, scale, *region), n, scale, a, antialias, exclude_outside)
    return np.ascontiguousarray(rows.T.astype(dtype))


@reads("Resize", since=10, fixed=(1,))
@reads("Upsample", since=9, fixed=(1,))
def read_resize_10(node: Node) -> Callable[[Tensor, Tensor], Tensor]:
    sampling = Sampling(node)
    return lambda x, scales: sampling.resize(x, _numbers(scales, "scales"), None, ())


@reads("Resize", since=11, fixed=(1, 2, 3))  # 18: antialias, axes, keep_aspect_ratio_policy
def read_resize_11(node: Node) -> Callable[..., Tensor]:
    sampling = Sampling(node)

    def resize(
        x: Tensor, roi: Tensor | None = None, scales: Tensor | None = None, sizes: Tensor | None = None
    ) -> Tensor:
        by_scale = scales is not None and scales.numel() > 0
        by_size = sizes is not None and sizes.numel() > 0
        if by_scale == by_size:
            raise ValueError("expected scales or sizes, and not both")
        lengths = None if sizes is None or not by_size else integers(sizes, "sizes")
        factors = [] if scales is None or not by_scale else _numbers(scales, "scales")
        return sampling.resize(x, factors, lengths, [] if roi is None else _numbers(roi, "roi"))

    return resize


def _numbers(given: Tensor, name: str) -> list[float]:
    if given.numel() > 2 * MAX_RANK:
        raise ValueError(f"{name} has {given.numel()} elements; expected at most {2 * MAX_RANK}")
    return [float(n) for n in given.array.reshape(-1)]


@reads("Upsample", since=1)
def read_upsample_1(node: Node) -> Callable[[Tensor], Tensor]:
    sampling = Sampling(node)
    return lambda x: sampling.resize(x, [1.0, 1.0, node["height_scale"], node["width_scale"]], None, ())


@reads("Upsample", since=7)
def read_upsample_7(node: Node) -> Callable[[Tensor], Tensor]:
    sampling = Sampling(node)
    return lambda x: sampling.resize(x, node["scales"], None, ())


# Writing: minorm.functional.interpolate in the operator's attributes


def _fitting(n: Length, m: Length, scale: float) -> float:
    """Return the float32 nearest to `scale` with which runtimes compute m elements from n.

    For example, 2.3 times 50 rounds to 114 here, and to 115 in runtimes. For a free axis, no float32 is right for all
    lengths.
    """
    near = np.float32(scale)
    while isinstance(n, int) and isinstance(m, int) and scaled(n, near) != m:
        near = np.nextafter(near, np.float32(0 if scaled(n, near) > m else np.inf))
    return float(near)


@writes(interpolate, "Resize", since=11)
def write_interpolate(
    g: Graph,
    input: Value,
    size: Any,
    scale_factor: Any,
    mode: str,
    align_corners: bool | None,
    recompute_scale_factor: bool | None,
    antialias: bool,
) -> Value:
    if mode == "area":
        raise RuleNotApplicable("mode area is written as a pooling")
    if input.dtype != dtypes.float32:
        raise RuleNotApplicable("runtimes resize float32")
    if antialias and not g.has("Resize", 18):
        raise RuleNotApplicable("before opset 18 there is no antialias")
    kind = "align_corners" if align_corners else "asymmetric" if mode == "nearest" else "half_pixel"
    shape, scales = g.result.shape, None
    if scale_factor is not None and not recompute_scale_factor:
        factors = scale_factor if isinstance(scale_factor, (list, tuple)) else [scale_factor] * (input.ndim - 2)
        triples = zip(input.known_shape[2:], shape[2:], factors, strict=True)
        scales = g.constant([1.0, 1.0, *(_fitting(*triple) for triple in triples)], np.float32, "scales")
    empty = None if g.has("Resize", 13) else g.constant([], np.float32, "empty")
    sizes = g.vector(tuple(shape)) if scales is None else None
    cubic = mode == "bicubic"
    return g.add(
        "Resize", input, empty, empty if scales is None else scales, *([] if sizes is None else [sizes]), shape=shape,
        mode="nearest" if mode.startswith("nearest") else "cubic" if cubic else "linear",
        coordinate_transformation_mode=kind,
        nearest_mode={"nearest": "floor", "nearest-exact": "round_prefer_ceil"}.get(mode),
        cubic_coeff_a=(-0.5 if antialias else -0.75) if cubic else None,
        antialias=1 if antialias else None, exclude_outside=1 if antialias else None,
    )  # fmt: skip
