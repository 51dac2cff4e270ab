"""Find the head of a loaded classifier (the last layer) by a walk back from the output, and replace the head.

A head is a product with weights (Gemm, MatMul with its Add, or a 1x1 Conv) and all nodes between this product and the
output, such as a pooling, a Reshape or a Softmax. The new layer replaces all these nodes, and returns one row of
numbers for each image.
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
from minorm.support.safe_names import printable
from minorm.support.states import completed
from minorm.tensor.tensor import Tensor

PRODUCTS = ("Gemm", "MatMul", "Conv")
ACTIVATIONS = ("Softmax", "LogSoftmax", "Sigmoid", "HardSigmoid")  # activations of an output; the loss takes logits
FORMS = ("Flatten", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Cast", "Dropout")
POOLINGS = ("GlobalAveragePool", "GlobalMaxPool", "AveragePool", "ReduceMean")
PASSED = (*ACTIVATIONS, *FORMS, *POOLINGS, "Relu")
SHOWN = 4  # the number of last nodes that an error names


@dataclass(frozen=True)
class Head:
    """Describes the last layer, and says where in the graph it is.

    part        the nodes of the layer, and all nodes between the layer and the output
    name        the layer's name in the graph: the path of its module, or the name of its node
    operator    Gemm, MatMul or Conv
    features    the number of features that the layer reads
    classes     the number of results of the layer
    after       the operators between the layer and the output
    weights     the names of the layer's tensors in the file
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
        """Return the activation after the head (Softmax, say); "" if the output is logits."""
        return next((operator for operator in self.after if operator in ACTIVATIONS), "")

    def layer(self, classes: int) -> Module:
        """Return a new random layer of the head's kind for `classes` classes."""
        if self.operator != "Conv":
            return nn.Linear(self.features, classes)
        relu = [nn.ReLU()] if "Relu" in self.after else []
        return nn.Sequential(nn.Conv2d(self.features, classes, 1), *relu, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def find(model: Any, x: Tensor) -> Head:
    """Find the head of a GraphModule with one output.

    x    images, with which the model runs once so that all shapes are known

    Raise ValueError if there is no head; the error says which nodes we looked for, and which nodes are the last.
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
    """Replace the head, and all nodes after it, by the layer."""
    completed(replacing.Replacement(model, head.part, layer, head.part.path or replacing.flat(head.name)).make)


def drop_activation(model: Any, head: Head) -> None:
    """Let the model return logits: replace the activation after the head (Softmax, say) by an Identity."""
    for place in head.part.places:
        spot = replacing.spots_of(model).spots[place]
        if spot.operator in ACTIVATIONS:
            part = Part([place], [spot.inputs[0]], spot.outputs[0], "")
            completed(replacing.Replacement(model, part, nn.Identity(), replacing.flat(spot.outputs[0])).make)
            return


def _has_weights(spots: Spots, place: int) -> bool:
    """Return whether the node multiplies a value of the network with fixed numbers."""
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
    """Return the shapes of a step's arguments, and the shape of its result."""
    found: list[Any] = []

    def see(step: Step, arguments: Any, results: Any, multiplications: int) -> None:
        if step is wanted:
            found[:] = [tuple(a.shape) for a in arguments if isinstance(a, Tensor)], tuple(results[0].shape)

    with evaluating(model), model.watching(see):
        model(x)
    return found[0], found[1]


def _looked_for() -> str:
    return (
        "no head was found; a head is the last Gemm, MatMul or 1x1 Conv with weights, if the only operators after it "
        f"are {', '.join((*ACTIVATIONS, *POOLINGS))}, Relu and changes of shape"
    )


def _last(spots: Spots) -> str:
    nodes = [f"{printable(spot.name or spot.outputs[0])} ({spot.operator})" for spot in spots.spots[-SHOWN:]]
    return f"the last nodes are {', '.join(nodes)}"
