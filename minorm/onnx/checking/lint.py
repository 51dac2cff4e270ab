"""Find oddities of a file's normalizations; the author may not know of them, and they may surprise users later.

An oddity is not an error: the file is valid, and minorm computes what the file says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.nn import Module
from minorm.onnx.graph.node_layers import NormLayer
from minorm.onnx.graph.reading import Node
from minorm.onnx.loading.roles import ARITHMETIC
from minorm.onnx.operators.norm import batch_norm

TINY = float(np.finfo(np.float16).smallest_subnormal) / 2  # float16 rounds this and smaller numbers to 0

Find = Callable[[str], Any]  # returns the array of a value that the file fixes, else None


@dataclass(frozen=True)
class Norm:
    """Describes a normalization of the file; `odd` has a sentence for each oddity."""

    node: str
    operator: str
    since: int  # 0 if the file writes it in several nodes, without its operator
    mode: str  # "training", "inference", or "" without a mode
    momentum: float | None
    eps: float | None
    over: str  # the parts with separate statistics
    odd: list[str] = field(default_factory=list)


OPERATORS = {
    f"{name}Normalization" for name in ("Batch", "Instance", "Group", "Layer", "RMS", "Lp", "MeanVariance")
} | {"LRN"}


def describe(node: Node, label: str, find: Find, readers: Mapping[str, set[str]], outputs: set[str]) -> Norm:
    """Describe a normalization and its oddities.

    find       a function that returns the array of a value, or None if the value is not constant in the file
    readers    value -> the operators that read it
    outputs    the outputs of the graph
    """
    has_mode = node.operator == "BatchNormalization"
    mode = ("training" if batch_norm.trains(node) else "inference") if has_mode else ""
    eps = node.get("epsilon", 1e-9 if node.operator == "MeanVarianceNormalization" else None)
    odd = [*_of_every(node, eps, find)]
    if has_mode:
        odd += [*_of_mode(node, readers, outputs), *_of_statistics(node, eps, find)]
    if node.operator in _OF_OPERATOR:
        odd += _OF_OPERATOR[node.operator](node)
    momentum = None if node.get("momentum") is None else float(node["momentum"])
    return Norm(label, node.operator, node.since, mode, momentum, eps, _over(node, find), odd)


def written(module: Module) -> list[Norm]:
    """Return the normalizations that a file writes with other operators; each has the path of the layer in `module`."""
    found = []
    for path, layer in module.named_modules():
        if isinstance(layer, NormLayer):
            how = layer.how
            over = f"{how.groups[1]} groups" if how.groups else f"axes {', '.join(map(str, how.axes))}"
            over += f", in {len(how.parts)} nodes"
            found.append(Norm(path, type(layer).__name__, 0, "", None, layer.eps, over))
    return found


def _over(node: Node, find: Find) -> str:
    scale = find(node.inputs[1]) if node.has(1) else None
    shape = None if scale is None else scale.shape
    if node.operator == "GroupNormalization":
        size = f" of {shape[0] // node['num_groups']}" if shape and node.since >= 21 else ""
        return f"{node['num_groups']} groups{size}"
    if node.operator in ("BatchNormalization", "InstanceNormalization"):
        if shape is None:
            return "channels"
        return f"{shape[0]} channels" if len(shape) == 1 else f"{'x'.join(map(str, shape))} positions"
    if node.operator in ("LayerNormalization", "RMSNormalization"):
        return f"axes {node['axis']} to the last"
    if node.operator == "LRN":
        return f"{node['size']} channels"
    return f"axes {', '.join(map(str, node['axes']))}" if node.operator != "LpNormalization" else f"axis {node['axis']}"


def _of_every(node: Node, eps: float | None, find: Find) -> Iterator[str]:
    scale, bias = ((find(node.inputs[place]) if node.has(place) else None) for place in (1, 2))
    if scale is not None and scale.dtype == dtypes.float16 and eps is not None and eps <= TINY:
        yield f"eps {eps:g} is 0 in float16: runtimes that compute in it divide by 0 where the variance is 0"
    elif eps == 0:
        yield "eps is 0: constant inputs divide by 0"
    elif eps is not None and eps > 0.01:
        yield f"eps {eps:g} is large beside a variance of 1"
    for name, array in (("scale", scale), ("bias", bias)):
        if array is not None and not np.isfinite(array.astype(np.float64)).all():
            yield f"{name} holds NaN or infinity"
    if scale is not None and scale.size and (dead := int((scale == 0).sum())):
        yield f"scale is 0 in {_share(dead, scale.size)}: the output there is the bias"


def _of_mode(node: Node, readers: Mapping[str, set[str]], outputs: set[str]) -> Iterator[str]:
    momentum, running = float(node["momentum"]), [name for name in node.outputs[1:3] if name]
    trains = batch_norm.trains(node)
    if node.since < 7 and trains and "is_test" not in node.attributes:
        yield "is_test is absent, so the node trains; many converters turn such a node into inference without a warning"
    if 7 <= node.since < 14 and len(node.outputs) > 1 and not trains:
        yield "the outputs after the first have no names, so they do not exist and the node does inference"
    if trains and not any(name in outputs or name in readers for name in running):
        yield "the node trains, but nothing reads the running statistics that it computes: y depends on the whole batch"
    blended = all(readers.get(name, set()) & ARITHMETIC for name in running) and bool(running)
    if momentum == 0 and not blended:
        yield "momentum 0 forgets the past: running statistics would be those of the last batch"
    elif 0 < momentum < 0.5:
        yield f"momentum {momentum:g} keeps {momentum:.0%} of the old statistics: is PyTorch's {1 - momentum:g} meant?"
    elif momentum == 1:
        yield "momentum 1 never changes the running statistics"
    elif not 0 <= momentum <= 1:
        yield f"momentum {momentum:g} is not between 0 and 1"


def _of_statistics(node: Node, eps: float | None, find: Find) -> Iterator[str]:
    mean, var = (find(node.inputs[place]) for place in (3, 4))
    if mean is None or var is None:
        yield "other nodes compute the statistics, so train() and eval() have no effect here"
        return
    if any(array.dtype in dtypes.HALVES for array in (mean, var)):
        yield f"statistics in {var.dtype}: small updates are lost in rounding"
    mean, var = mean.astype(np.float64), var.astype(np.float64)
    if not (np.isfinite(mean).all() and np.isfinite(var).all()):
        yield "running statistics hold NaN or infinity"
    if not batch_norm.trains(node) and var.size and (mean == 0).all() and (var == 1).all():
        yield "stale statistics: mean 0 and variance 1 everywhere, so they were never trained"
    small = 0.0 if eps is None else eps
    for wrong, why in (
        (int((var < 0).sum()), "the variance is negative"),
        (int((var == 0).sum()), "the variance is 0"),
        (int(((var > 0) & (var < small)).sum()), f"the variance is below eps {small:g}"),
    ):
        if wrong:
            yield f"{why} in {_share(wrong, var.size)}"
    if var.ndim > 1:
        yield "statistics for every position (spatial=0), which versions from 9 on cannot express"


def _share(count: int, total: int) -> str:
    return "all channels" if count == total else f"{count} of {total} channels"


def _of_group(node: Node) -> list[str]:
    if node.since == 18:
        return ["version 18 has one scale per group and is deprecated: the checker refuses it; convert to opset 21"]
    return _of_stash(node)


def _of_stash(node: Node) -> list[str]:
    kind = node.get("stash_type", 1)
    return [] if kind in (1, 11) else ["stash_type asks for statistics in 16 bits; minorm computes them in float32"]


_OF_OPERATOR: dict[str, Callable[[Node], list[str]]] = {
    "GroupNormalization": _of_group,
    "LayerNormalization": _of_stash,
    "RMSNormalization": _of_stash,
    "MeanVarianceNormalization": lambda _: ["of constant data onnxruntime makes NaN, minorm 0"],
    "LRN": lambda node: [] if node["size"] % 2 else ["the window is even: ONNX's is the mirror image of PyTorch's"],
}
