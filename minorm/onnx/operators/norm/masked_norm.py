"""Write normalizations with a mask as formulas, from opset 13 on, because ONNX has no operator for them.

The mask is a value of the graph, often an input. The sums are over the n elements of a row for which the mask is True.
All other elements of x, even NaN, become 0 before the first computation. x is centred twice, because the mean of
numbers far from 0 is rounded. The mean of the differences is this rounding error. If such a file is loaded, its nodes
can be trained; the running statistics in a file for inference do not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import minorm.functional as F
from minorm.devices import dtypes
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.registry import lowers
from minorm.onnx.graph.sizes import product
from minorm.onnx.operators.math.reduction import reduce
from minorm.onnx.operators.norm.layer_norm import first_axis
from minorm.onnx.operators.norm.masks import masked
from minorm.onnx.operators.norm.rms_norm import epsilon
from minorm.onnx.operators.norm.statistics import affine, blend, cast_all, computed, count_up
from minorm.onnx.operators.shape.shape import channels, expand, reshape


@dataclass(frozen=True)
class Moments:
    """The statistics of each row.

    count    the number of elements that count, but at least 1
    seen     True if any element counts
    mean     the mean of these elements
    var      the population variance of these elements
    """

    count: Value
    seen: Value
    mean: Value | None
    var: Value


def _only(g: Graph, mask: Value, x: Value) -> Value:
    """Write x where the mask is True, and 0 elsewhere."""
    return g.add("Where", mask, x, g.scalar(0, x), dtype=x.dtype)


def _standardize(
    g: Graph, x: Value, mask: Value, axes: Sequence[int], eps: float, centered: bool = True, guard: bool = False
) -> tuple[Value, Moments]:
    """Write (x - mean) / sqrt(var + eps) where the mask is True, and 0 elsewhere; return also the statistics."""
    axes = sorted(axes)
    n = reduce(g, "ReduceSum", expand(g, g.cast(mask, x.dtype), x.known_shape), axes)
    count = g.add("Max", n, g.scalar(1, n))

    def mean_of(terms: Value) -> Value:
        return g.add("Div", reduce(g, "ReduceSum", terms, axes), count)

    x, mean = _only(g, mask, x), None
    if centered:
        mean = mean_of(x)
        x = _only(g, mask, g.add("Sub", x, mean))
        rest = mean_of(x)
        x, mean = _only(g, mask, g.add("Sub", x, rest)), g.add("Add", mean, rest)
    var = mean_of(g.add("Mul", x, x))
    small = g.scalar(eps, x)
    std = g.add("Add", g.add("Sqrt", var), small) if guard else g.add("Sqrt", g.add("Add", var, small))
    return g.add("Div", x, std), Moments(count, g.add("Greater", n, g.scalar(0, n)), mean, var)


def _update(g: Graph, running: Value, batch: Value, seen: Value, momentum: float | None, batches: Value | None) -> None:
    """Blend a statistic into the running statistic, but only for rows with at least one element that counts."""
    old = g.add("Identity", running)  # the present value: a node that later reads the buffer itself reads its new value
    shape = running.known_shape
    blend(g, running, reshape(g, batch, shape), momentum, batches)
    g.update(running, g.add("Where", reshape(g, seen, shape), g.current(running), old, dtype=old.dtype))


def _count(g: Graph, batches: Value, seen: Value) -> None:
    """Add 1 to batches if at least one element counts."""
    old = g.add("Identity", batches)
    any_seen = reduce(g, "ReduceMax", g.cast(seen, dtypes.float32), range(seen.ndim), keepdims=False)
    count_up(g, batches)
    g.update(batches, g.add("Where", g.cast(any_seen, dtypes.bool), g.current(batches), old, dtype=old.dtype))


def _unbiased(g: Graph, found: Moments) -> Value:
    """Write the unbiased variance, var * n / (n - 1)."""
    rest = g.add("Max", g.add("Sub", found.count, g.scalar(1, found.count)), g.scalar(1, found.count))
    return g.add("Mul", found.var, g.add("Div", found.count, rest))


def _given(g: Graph, x: Value, mask: Value, mean: Value, var: Value, eps: float) -> Value:
    """Write (x - mean) / sqrt(var + eps) with given mean and var."""
    centred = g.add("Sub", _only(g, mask, x), mean)
    return g.add("Div", centred, g.add("Sqrt", g.add("Add", var, g.scalar(eps, var))))


@lowers(F.batch_norm)
@masked
def lower_batch_norm(g: Graph, mask: Value, **call: Any) -> Value:
    wanted = [p for p in (call["weight"], call["bias"], call["running_mean"]) if p is not None]
    axes = [0] if any(p.ndim > 1 for p in wanted) else [0, *range(2, call["x"].ndim)]
    return _running(g, mask, axes, from_batch=call.pop("training"), per_sample=False, **call)


@lowers(F.instance_norm)
@masked
def lower_instance_norm(g: Graph, mask: Value, **call: Any) -> Value:
    axes = range(2, call["x"].ndim)
    return _running(g, mask, axes, from_batch=call.pop("use_input_stats"), per_sample=True, **call)


def _running(
    g: Graph,
    mask: Value,
    axes: Sequence[int],
    from_batch: bool,
    per_sample: bool,
    *,
    x: Value,
    running_mean: Value | None,
    running_var: Value | None,
    weight: Value | None,
    bias: Value | None,
    momentum: float | None,
    eps: float,
    num_batches_tracked: Value | None,
    unbiased_running_var: bool,
    compute_dtype: Any,
) -> Value:
    """Normalize each channel with x's statistics if `from_batch` is True, or else with the running statistics.

    If x's statistics are used, the running statistics, if there are any, are updated too.
    """

    def shaped(vector: Value | None) -> Value | None:
        return vector if vector is None or vector.ndim > 1 else channels(g, x, vector)

    data, scale, shift = cast_all(g, computed(x, compute_dtype), x, weight, bias)
    if not from_batch:
        mean, var = (shaped(g.cast(g.current(p), data.dtype)) for p in (running_mean, running_var) if p is not None)
        assert mean is not None
        assert var is not None
        y = _given(g, data, mask, mean, var, eps)
    else:
        y, found = _standardize(g, data, mask, axes, eps)
        if running_mean is not None and running_var is not None:
            assert found.mean is not None
            mean, seen = found.mean, found.seen
            var = _unbiased(g, found) if unbiased_running_var else found.var
            if per_sample:
                number = reduce(g, "ReduceSum", g.cast(seen, data.dtype), [0])
                samples = g.add("Max", number, g.scalar(1, number))
                mean, var = (g.add("Div", reduce(g, "ReduceSum", v, [0]), samples) for v in (mean, var))
                seen = g.add("Greater", number, g.scalar(0, number))
            _update(g, running_mean, mean, seen, momentum, num_batches_tracked)
            _update(g, running_var, var, seen, momentum, num_batches_tracked)
            if momentum is None and num_batches_tracked is not None:
                _count(g, num_batches_tracked, seen)
    return g.cast(_only(g, mask, affine(g, y, shaped(scale), shaped(shift))), x.dtype)


@lowers(F.group_norm)
@masked
def lower_group_norm(
    g: Graph,
    mask: Value,
    x: Value,
    num_groups: int,
    weight: Value | None,
    bias: Value | None,
    eps: float,
    compute_dtype: Any,
) -> Value:
    """Split axis 1 into (groups, channels of a group), and normalize."""
    shape = x.known_shape
    split = (shape[0], num_groups, product(shape[1:2]) // num_groups, *shape[2:])
    data, scale, shift = cast_all(g, computed(x, compute_dtype), x, weight, bias)
    groups = reshape(g, expand(g, mask, shape), split)
    y, _ = _standardize(g, reshape(g, data, split), groups, range(2, len(split)), eps)

    def by_group(p: Value | None) -> Value | None:
        if p is None:
            return None
        return reshape(g, p, (num_groups, int(p.known_shape[0]) // num_groups, *(1,) * (len(split) - 3)))

    y = _only(g, groups, affine(g, y, by_group(scale), by_group(shift)))
    return g.cast(reshape(g, y, shape), x.dtype)


@lowers(F.layer_norm)
@masked
def lower_layer_norm(
    g: Graph,
    mask: Value,
    x: Value,
    normalized_shape: Any,
    weight: Value | None,
    bias: Value | None,
    eps: float,
    compute_dtype: Any,
) -> Value:
    data, scale, shift = cast_all(g, computed(x, compute_dtype), x, weight, bias)
    y, _ = _standardize(g, data, mask, range(first_axis(x, normalized_shape), x.ndim), eps)
    return g.cast(_only(g, mask, affine(g, y, scale, shift)), x.dtype)


@lowers(F.rms_norm)
@masked
def lower_rms_norm(
    g: Graph, mask: Value, x: Value, normalized_shape: Any, weight: Value | None, eps: float | None, compute_dtype: Any
) -> Value:
    data, scale = cast_all(g, computed(x, compute_dtype), x, weight)
    axes = range(first_axis(x, normalized_shape), x.ndim)
    y, _ = _standardize(g, data, mask, axes, epsilon(x, eps), centered=False)
    return g.cast(_only(g, mask, affine(g, y, scale, None)), x.dtype)


@lowers(F.mean_variance_norm)
@masked
def lower_mean_variance_norm(
    g: Graph, mask: Value, x: Value, axes: Sequence[int], eps: float, compute_dtype: Any
) -> Value:
    data = g.cast(x, computed(x, compute_dtype))
    y, _ = _standardize(g, data, mask, [axis % x.ndim for axis in axes], eps, guard=True)
    return g.cast(y, x.dtype)
