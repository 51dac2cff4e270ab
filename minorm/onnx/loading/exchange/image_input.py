"""Change a classifier's input to the form that training needs: any number of images, N x channels x size x size.

If a file has another form, we change the file before we load it. A fixed batch becomes free, in the input and in the
shapes of Reshapes. Before an input of N x size x size x channels, we add a Transpose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from minorm.onnx.graph.names import drop
from minorm.support.safe_names import printable

CHANNELS = (1, 3)  # of grey images, and of colour images
BATCH = "N"
IMAGES = "images"  # the name of an input in front of a Transpose
FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)


@dataclass(frozen=True)
class ImageInput:
    """Describes the images that a file declares.

    channels        the number of channels; None if it is free
    size            height and width; None if they are free
    batch           the number of images; None if it is free
    channels_last   True if the shape is N x size x size x channels
    """

    name: str
    channels: int | None
    size: int | None
    batch: int | None
    channels_last: bool


def described(model: Any) -> ImageInput:
    """Describe the only input of a ModelProto; raise ValueError if it does not take square images of floats."""
    held = {tensor.name for tensor in model.graph.initializer}
    inputs = [entry for entry in model.graph.input if entry.name not in held]
    if len(inputs) != 1:
        names = ", ".join(printable(entry.name) for entry in inputs)
        raise ValueError(f"the graph takes {len(inputs)} inputs ({names}); expected one, of images")
    name, given = printable(inputs[0].name), inputs[0].type.tensor_type
    if given.elem_type not in FLOATS:
        kind = TensorProto.DataType.Name(given.elem_type).lower()
        raise ValueError(f"the input {name!r} of the graph takes {kind}; expected floats, through which gradients flow")
    dims = [int(dim.dim_value) if dim.dim_value > 0 else None for dim in given.shape.dim]
    if given.HasField("shape") and len(dims) != 4:
        raise ValueError(f"the input {name!r} of the graph has {len(dims)} axes; expected 4: images")
    batch, *image = dims or [None] * 4
    channels_last = image[0] not in CHANNELS and image[2] in CHANNELS
    channels, sides = (image[2], image[:2]) if channels_last else (image[0], image[1:])
    shape = " x ".join("?" if length is None else str(length) for length in dims)
    if channels is not None and channels not in CHANNELS:
        raise ValueError(f"the input {name!r} of the graph is {shape}; expected 1 or 3 channels")
    if None not in sides and sides[0] != sides[1]:
        raise ValueError(f"the input {name!r} of the graph is {shape}; expected square images")
    size = sides[0] if None not in sides else None
    return ImageInput(inputs[0].name, channels, size, batch, channels_last)


def prepare(model: Any, found: ImageInput, channels: int, size: int) -> None:
    """Change the ModelProto so that it takes any number of images, N x channels x size x size."""
    graph = model.graph
    entry = next(entry for entry in graph.input if entry.name == found.name)
    if found.batch is not None:
        for shape in _shapes_of_reshapes(graph):
            _free_batch(shape, found.batch)
    if found.batch is not None or found.size not in (None, size):
        del graph.value_info[:]
        for output in graph.output:
            if output.type.tensor_type.shape.dim:
                output.type.tensor_type.shape.dim[0].dim_param = BATCH
    name = found.name
    if found.channels_last:
        taken = {value for node in graph.node for value in (*node.input, *node.output)}
        name = next(name for name in (IMAGES, *(f"{IMAGES}_{i}" for i in range(len(taken) + 1))) if name not in taken)
        node = helper.make_node("Transpose", [name], [found.name], name=f"{name}/Transpose", perm=[0, 2, 3, 1])
        nodes = [node, *graph.node]
        del graph.node[:]
        graph.node.extend(nodes)
    kind = entry.type.tensor_type.elem_type
    entry.CopyFrom(helper.make_tensor_value_info(name, kind, [BATCH, channels, size, size]))


def drop_outputs(model: Any, gone: Callable[[str], bool]) -> None:
    """Drop each output of the ModelProto if `gone` returns True for its name."""
    drop(model.graph.output, lambda entry: gone(entry.name))


def _shapes_of_reshapes(graph: Any) -> Iterator[Any]:
    """Yield the TensorProtos that only Reshapes read, as their shape."""
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and len(node.attribute) == 1 and node.attribute[0].HasField("t"):
            tensors[node.output[0]] = node.attribute[0].t
    readers: dict[str, set[str]] = {}
    for node in graph.node:
        for place, value in enumerate(node.input):
            readers.setdefault(value, set()).add(f"{node.op_type} {place}")
    for name, tensor in tensors.items():
        if readers.get(name) == {"Reshape 1"} and tensor.data_type == TensorProto.INT64:
            yield tensor


def _free_batch(tensor: Any, batch: int) -> None:
    """Replace the batch in the shape of a Reshape by -1, or by 0 (which copies the batch) if the shape has a -1."""
    shape = numpy_helper.to_array(tensor).copy()
    if shape.ndim != 1 or shape.size < 2 or shape[0] != batch:
        return
    shape[0] = 0 if -1 in shape[1:] else -1
    changed = numpy_helper.from_array(shape.astype(np.int64), tensor.name)
    tensor.CopyFrom(changed)
