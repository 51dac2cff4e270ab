"""Load an image classifier from any ONNX file, in order to train it on other classes and other images."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import onnx

from minorm.devices import dtypes
from minorm.nn.evaluating import evaluating
from minorm.onnx.graph import encoding
from minorm.onnx.graph.storage import embedded_weights
from minorm.onnx.graph.tensors import Budget
from minorm.onnx.loading import load, metadata
from minorm.onnx.loading.exchange import heads, image_input
from minorm.onnx.loading.exchange.heads import Head
from minorm.onnx.loading.exchange.image_input import ImageInput
from minorm.onnx.loading.graph_module import GraphModule
from minorm.serialization import limits
from minorm.tensor.tensor import Tensor

QUANTIZED = ("QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger")
CLOSE = 1e-3  # of the largest number: the allowed difference of two images' results together and one by one


def whole(path: str, max_bytes: int = limits.ONNX, external_root: str | None = None) -> bytes:
    """Return the bytes of a model with all its weights.

    These are the bytes of the file. If the file has weights in other files, the bytes of a copy with these weights are
    returned.
    """
    model, folder = load.parse(path, max_bytes, None, external_root)
    if not embedded_weights.is_outside(model):
        with open(path, "rb") as file:
            return file.read()
    embedded_weights.bring_in(model, folder, Budget(max_bytes))
    return encoding.encode(model, "init")


@dataclass(frozen=True)
class Classifier:
    """Holds the file of a classifier, and builds networks from it.

    what       the name of the file in error messages
    contents   the bytes of the file
    """

    what: str
    contents: bytes
    max_bytes: int = limits.ONNX
    _heads: dict[tuple[int, int], Head] = field(default_factory=dict, compare=False)

    @cached_property
    def input(self) -> ImageInput:
        """Describe the images that the classifier takes."""
        return self._named(lambda: image_input.described(self._proto()))

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """Return the entries of the file's metadata."""
        return metadata.entries_of(self._proto())

    def opened(self, channels: int, size: int) -> tuple[GraphModule, Head]:
        """Return the network with all weights, and its head; raise ValueError if the images do not fit the network."""
        opened: tuple[GraphModule, Head] = self._named(lambda: self._opened(channels, size))
        self._heads[channels, size] = opened[1]
        return opened

    def head(self, channels: int, size: int) -> Head:
        """Return only the head."""
        return self._heads[channels, size] if (channels, size) in self._heads else self.opened(channels, size)[1]

    def _opened(self, channels: int, size: int) -> tuple[GraphModule, Head]:
        given = self.input
        if given.channels not in (None, channels):
            raise ValueError(f"it takes images with {_channels(given.channels)}, but these images have {channels}")
        proto = self._proto()
        image_input.prepare(proto, given, channels, size)
        x = Tensor(np.random.default_rng(0).random((2, channels, size, size), np.float32))
        reasons = []
        for output in self._outputs(proto):
            try:
                model = _cut(proto, output, self.max_bytes)
                self._check_runs(model, x)
                return model, heads.find(model, x)
            except ValueError as error:
                reasons.append(str(error))
        quantized = any(node.op_type in QUANTIZED for node in proto.graph.node)
        raise ValueError(reasons[0] + ("; the file is quantized: expected its model in floats" if quantized else ""))

    def build(self, channels: int, size: int, classes: int, keeps_head: bool = False) -> GraphModule:
        """Build a network that returns `classes` logits for each image; its head is new and random.

        keeps_head    True to keep the head of the file
        """
        model, head = self.opened(channels, size)

        def finish() -> None:
            if not keeps_head:
                heads.replace(model, head, head.layer(classes))
            elif head.activation:
                heads.drop_activation(model, head)
            made = _outputs(model, Tensor(np.zeros((2, channels, size, size), np.float32))).shape
            if made != (2, classes):
                raise ValueError(
                    f"its output for two images has shape {made}; expected (2, {classes}), one number for each class"
                )

        self._named(finish)
        return model

    def _check_runs(self, model: GraphModule, x: Tensor) -> None:
        """If the file has a fixed batch, check that two images give the same results in one batch as in two batches."""
        given, size = self.input, x.shape[2]
        try:
            both = _outputs(model, x).numpy()
        except ValueError as error:
            fixed = [f"{name} {length}" for name, length in (("batch", given.batch), ("size", given.size)) if length]
            why = f"; the file was written for {' and '.join(fixed)}" if fixed else ""
            raise ValueError(f"it does not run on two images of {size} x {size}{why}: {error}") from error
        if given.batch is None:
            return
        alone = np.concatenate([_outputs(model, x[i : i + 1]).numpy() for i in range(2)])
        if alone.shape != both.shape or np.abs(alone - both).max() > CLOSE * np.abs(alone).max():
            raise ValueError(
                f"it was written for a batch of {given.batch}, and gives different results for other batch sizes; "
                "expected a file with a free batch (in PyTorch dynamic_axes, or dynamic_shapes)"
                             )  # fmt: skip

    def _outputs(self, proto: Any) -> list[str]:
        """Return the names of the outputs, without new running statistics."""
        return [name for name in (entry.name for entry in proto.graph.output) if not name.endswith(".updated")]

    @cached_property
    def outputs(self) -> list[str]:
        """Return the names of the outputs; training uses the first output that has a head."""
        return self._outputs(self._proto())

    def _proto(self) -> Any:
        return encoding.parse(self.contents, f"init: {self.what}", self.max_bytes)

    def _named(self, act: Any) -> Any:
        try:
            return act()
        except ValueError as error:
            raise ValueError(f"{self.what}: {error}") from error


def _cut(proto: Any, output: str, max_bytes: int) -> GraphModule:
    """Return the network up to one output, in float32; the network still updates its running statistics."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    image_input.drop_outputs(copy, lambda name: name != output and not name.endswith(".updated"))
    model = load.load(copy, max_bytes=max_bytes)
    types = {p.dtype for p in (*model.parameters(), *(Tensor(np.zeros(0, i.dtype)) for i in model.inputs))}
    return model if types == {dtypes.float32} else load.load(copy, max_bytes=max_bytes, dtype=dtypes.float32)


def _outputs(model: GraphModule, x: Tensor) -> Any:
    """Return the model's output in evaluation mode."""
    with evaluating(model):
        return model(x)


def _channels(count: Any) -> str:
    return f"{count} channel{'s' if count != 1 else ''}"
