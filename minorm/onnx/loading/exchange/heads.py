"""The head of a loaded classifier: its last layer, found by walking back from the output, and another one in its place.

A head is a product with weights, Gemm, MatMul with its Add, or a 1x1 Conv, and whatever follows it up to the output: a
pooling, a Reshape, a Softmax. All of that makes room for the new layer, which gives one row of numbers for each image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minorm import nn
from minorm.nn import Module
from minorm.nn.evaluating import evaluating
from minorm.onnx.graph.step import Step
from minorm.onnx.loading.exchange import replacing
from minorm.onnx.loading.exchange.spots import Part, Spots
from minorm.support.masking import printable
from minorm.support.states import completed
from minorm.tensor.tensor import Tensor

PRODUCTS = ("Gemm", "MatMul", "Conv")
ACTIVATIONS = ("Softmax", "LogSoftmax", "Sigmoid", "HardSigmoid")  # of an output; the loss of a run takes logits
FORMS = ("Flatten", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Cast", "Dropout")
POOLINGS = ("GlobalAveragePool", "GlobalMaxPool", "AveragePool", "ReduceMean")
PASSED = (*ACTIVATIONS, *FORMS, *POOLINGS, "Relu")
SHOWN = 4  # last nodes, in an error


@dataclass(frozen=True)
class Head:
    """Where the last layer stands, and what it is.

    part        its nodes, with all that follows up to the output
    name        of the layer in the graph: a module's path, or its node
    operator    Gemm, MatMul or Conv
    features    that it reads, and classes that it gives
    after       the operators that follow
    weights     the names of its tensors in the file
    """

    part: Part
    name: str
    operator: str
    features: int
    classes: int
    after: tuple[str, ...]
    weights: tuple[str, ...]

    @property
    def activation(self) -> str:
        """The Softmax, or its like, that follows; "" where the output is logits."""
        return next((operator for operator in self.after if operator in ACTIVATIONS), "")

    def layer(self, classes: int) -> Module:
        """A new one of its kind for so many classes, drawn at random."""
        if self.operator != "Conv":
            return nn.Linear(self.features, classes)
        relu = [nn.ReLU()] if "Relu" in self.after else []
        return nn.Sequential(nn.Conv2d(self.features, classes, 1), *relu, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def find(model: Any, x: Tensor) -> Head:
    """The head of a GraphModule with one output. x: images that it takes, to see shapes.

    ValueError, which says what was looked for and what the last nodes are, where there is none.
    """
    spots, name, after = replacing.spots_of(model), model.output_names[0], list[str]()
    places: list[int] = []
    while name in spots.makers and name not in spots.fixed:
        place = spots.makers[name]
        layer = spots.with_bias(place)
        if spots.spots[layer[0]].operator in PRODUCTS and _has_weights(spots, layer[0]):
            return _head(model, x, spots, layer, [*layer, *places], tuple(reversed(after)))
        spot = spots.spots[place]
        read = [value for value in spot.inputs if value not in spots.fixed and value not in spots.lengths]
        if spot.operator not in PASSED or len(read) != 1:
            break
        after.append(spot.operator)
        places.insert(0, place)
        name = read[0]
    raise ValueError(f"{_looked_for()}; {_last(spots)}")


def replace(model: Any, head: Head, layer: Module) -> None:
    """Put the layer in the place of the head and of all that follows it."""
    completed(replacing.Replacement(model, head.part, layer, head.part.path or replacing.flat(head.name)).make)


def drop_activation(model: Any, head: Head) -> None:
    """Let the model return logits: the Softmax, or its like, behind the head computes nothing any more."""
    for place in head.part.places:
        spot = replacing.spots_of(model).spots[place]
        if spot.operator in ACTIVATIONS:
            part = Part([place], [spot.inputs[0]], spot.outputs[0], "")
            completed(replacing.Replacement(model, part, nn.Identity(), replacing.flat(spot.outputs[0])).make)
            return


def _has_weights(spots: Spots, place: int) -> bool:
    """Whether it multiplies one value of the network with fixed numbers."""
    first, second, *_ = spots.spots[place].inputs
    return first not in spots.fixed and second in spots.fixed


def _head(model: Any, x: Tensor, spots: Spots, layer: list[int], places: list[int], after: tuple[str, ...]) -> Head:
    step: Step = model._steps[layer[0]]
    given, made = _shapes(model, step, x)
    spot = spots.spots[layer[0]]
    name = spots.module_of(layer[0]) or spot.name or spot.outputs[0]
    if spot.operator == "Conv" and set(given[1][2:]) != {1}:
        raise ValueError(f"{_looked_for()}; the last one, {printable(name)!r}, is a Conv of {given[1][2:]}")
    axis = 1 if spot.operator == "Conv" else -1
    tensors = [value for place in layer for value in spots.spots[place].inputs if value in spots.fixed]
    part = Part(places, [spot.inputs[0]], model.output_names[0], spots.module_of(layer[0]))
    return Head(part, name, spot.operator, given[0][axis], made[axis], after, tuple(filter(None, tensors)))


def _shapes(model: Any, wanted: Step, x: Tensor) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    """The shapes that a step reads, and that of its result."""
    found: list[Any] = []

    def see(step: Step, arguments: Any, results: Any, multiplications: int) -> None:
        if step is wanted:
            found[:] = [tuple(a.shape) for a in arguments if isinstance(a, Tensor)], tuple(results[0].shape)

    with evaluating(model), model.watching(see):
        model(x)
    return found[0], found[1]


def _looked_for() -> str:
    return (
        "no head was found: looked for the last Gemm, MatMul or 1x1 Conv with weights, followed by nothing but "
        f"{', '.join((*ACTIVATIONS, *POOLINGS))}, Relu or a change of form"
    )


def _last(spots: Spots) -> str:
    nodes = [f"{printable(spot.name or spot.outputs[0])} ({spot.operator})" for spot in spots.spots[-SHOWN:]]
    return f"the last nodes are {', '.join(nodes)}"
