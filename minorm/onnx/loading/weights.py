"""Collect the float tensors that the judge examines: tensors in nodes, copies, and duplicates from folding.

PyTorch's exporters write equal weights of a fresh model once; here they train as separate weights again. If a Parameter
is expanded to the batch, the exporters repeat it in the file, for each sample of the example input. Here, it trains as
one Parameter again.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.onnx.graph import paths
from minorm.onnx.graph.errors import LoadError
from minorm.onnx.graph.reading import Node
from minorm.onnx.loading.judging import tables
from minorm.onnx.loading.judging.naming import Origin

# The type of `load(trainable=...)`: names and patterns, or a function of a name and its array.
Trainable = str | Iterable[str] | Callable[[str, np.ndarray[Any, Any]], bool] | None


def constants(nodes: Iterable[Node]) -> dict[str, Any]:
    """Return a dict of the float tensors that Constant nodes hold; the keys are the names of the nodes' outputs."""
    found = {}
    for node in nodes:
        if node.operator == "Constant" and len(node.attributes) == 1:
            [value] = node.attributes.values()
            numbers = {"value_float", "value_floats"} & node.attributes.keys()
            array = np.array(value, dtypes.float32) if numbers else value
            if isinstance(array, np.ndarray) and dtypes.is_float(array.dtype):
                found[node.outputs[0]] = array
    return found


def copies(nodes: Sequence[Node], arrays: Mapping[str, Any], origin: Origin) -> dict[str, str]:
    """Map each tensor that a tool wrote as an Identity of another tensor to this other tensor.

    PyTorch's exporter writes the equal weights of a fresh model once. If two modules really share a tensor, this tensor
    has one name in the files, without an Identity. But after folding (`onnx::MatMul_7`), the tensor has a separate name
    for each call of a module.
    """
    found: dict[str, str] = {}
    modules: dict[str, set[str]] = {}  # the modules that read a value
    for node in nodes if origin.scripted else ():
        for name in node.inputs if node.operator != "Identity" else ():
            modules.setdefault(name, set()).add(paths.uncalled(paths.of_name(node.name)))
    read = {name for node in nodes for name in node.inputs}  # a value that the graph only returns is not a weight
    for node in () if origin.ours else nodes:
        name, source = node.outputs[0], node.inputs[0] if node.inputs else ""
        if node.operator != "Identity" or name not in read or not (source in arrays or source in found):
            continue
        first = found.get(source, source)
        apart = ":" in name and name in modules and not modules[name] & (modules.get(first, set()) | {""})
        if ("." in name and origin.names(name)) or apart:
            found[name] = first
            if apart:
                modules.setdefault(first, set()).update(modules[name])
    return found


def expanded(name: str, array: Any, origin: Origin, begins: Container[str]) -> int | None:
    """Return the axis along which folding repeated a weight for each sample of a fixed batch; else None.

    begins    initial states of recurrences, whose batch may be any axis but the last
    """
    if origin.ours or origin.names(name):
        return None
    if tables.repeats(array):
        return 0
    if name not in begins or (array == array.flat[:1]).all():
        return None
    for axis in range(array.ndim - 1):
        if array.shape[axis] > 1 and (array == array.take([0], axis)).all():
            return axis
    return None


def spread(weights: Iterable[str], others: Iterable[str], arrays: Mapping[str, Any], origin: Origin) -> dict[str, str]:
    """Map each tensor of `others` that repeats a weight for each sample to the name of this weight.

    Folding of constants makes such tensors. For example, PyTorch's newer exporter writes an RNN as sums and products.
    The first step multiplies zeros by a matrix and adds a bias. Folding replaces this step by the bias, which is
    repeated for each sample.
    """
    if not origin.kinds:
        return {}
    named = {}
    for name in filter(origin.names, weights):
        array = arrays[name]
        if (array * 1024 % 1).any():  # zeros and ones would match anything
            named[array.shape, array.dtype, array.tobytes()] = name
    found = {}
    for name in others:
        array = arrays[name]
        for axes in range(array.ndim) if not origin.names(name) and array.size else ():
            one = array[(0,) * axes]
            other = named.get((one.shape, one.dtype, one.tobytes()))
            if other is not None and (array == one).all():
                found[name] = other
    return found


# What the caller says


def listed(trainable: Trainable) -> Any:
    """Return names and patterns as a list; return a function, None or anything else unchanged."""
    if isinstance(trainable, str):
        return [trainable]
    return list(trainable) if isinstance(trainable, Iterable) else trainable


def asked(trainable: Trainable, arrays: Mapping[str, Any], others: Collection[str]) -> set[str]:
    """Return the names of `arrays` that the caller wants to train.

    Raise LoadError if a name or pattern matches nothing.

    arrays    the tensors that can be trained, because a gradient reaches them
    others    further values of the graph, for the message
    """
    if callable(trainable):
        found = set()
        for name, array in arrays.items():
            view = array.view()
            view.flags.writeable = False
            answer = trainable(name, view)
            if not isinstance(answer, (bool, np.bool_)):
                raise TypeError(f"load: trainable({name!r}, array) returned {answer!r:.80}; expected True or False")
            found.update([name] if answer else [])
        return found
    if not isinstance(trainable, Iterable):
        raise TypeError(f"load: trainable is {type(trainable).__name__}; expected names and patterns, or a function")
    found = set()
    for pattern in listed(trainable):
        if not isinstance(pattern, str):
            raise TypeError(f"load: trainable holds {pattern!r:.80}; expected names and patterns, or a function")
        matched = {pattern} & arrays.keys() or set(fnmatch.filter(arrays, pattern))
        if not matched:
            raise LoadError(f"load: trainable asks for {pattern!r:.200}, {_why_none(pattern, arrays, others)}")
        found |= matched
    return found


def _why_none(pattern: str, arrays: Iterable[str], others: Collection[str]) -> str:
    if pattern in others:
        return "which cannot train: it is not a float tensor of the file, or no gradient reaches it from the outputs"
    known = [name for name in list(arrays)[:1000] if len(name) < 100]
    near = difflib.get_close_matches(pattern[:100], known, n=3)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "`minorm check` lists what would train"
    return f"which matches no tensor that can train; {hint}"
