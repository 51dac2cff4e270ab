"""Grad-CAM: shows which parts of a picture raise the score of a class, from gradients at the last feature maps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

import minorm.functional as F
from minorm.devices import dtypes
from minorm.diagnosis.subject import OurModel
from minorm.graph import trace
from minorm.graph.differentiation import grad
from minorm.graph.grad_mode import enable_grad, no_grad
from minorm.graph.trace import Call
from minorm.nn import Module
from minorm.support.argument_errors import checked, kind_of
from minorm.support.documented import documented
from minorm.support.safe_names import quoted
from minorm.tensor import combining
from minorm.tensor.tensor import Tensor

CONVOLUTIONS = (F.conv2d, F.conv_transpose2d)


@documented(
    {},
    model="a Module that gives N x classes, or a loaded ONNX graph; any device and mode",
    images="a batch N x C x H x W, scaled as the model takes it",
    layer="the layer whose output is explained: a Module of the model, or its name; for a loaded graph also the name "
    "of a node or of a value. None takes the last output that has the same height and width as the output of the last "
    "convolution, such as the output of its activation. In a model without a convolution, None takes the last output "
    "N x C x H x W",
    target="the class to explain: one int for all images, or one int for each image; None takes the predicted class",
)
@checked
def grad_cam(model: Any, images: Tensor, layer: Any = None, target: Any = None) -> Tensor:
    """relu(sum_k a_k A_k), where A_k are a layer's maps, and a_k is the mean of d(the class's score) / d A_k.

    The result has shape N x H x W: the maps are resized to the images' size, and scaled so that each image's largest
    number is 1. An image has only zeros if no part of it raises the score. The model runs in evaluation mode and is
    then restored.

    Raises ValueError if the layer does not run, if the layer's output is not N x C x H x W, if no score depends on this
    output, or if the target is not a class. Raises TypeError if the model is not a Module.

    Example:
        >>> model = nn.Sequential(nn.AvgPool2d(2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())  # the mean of the maps
        >>> heat = mn.diagnosis.grad_cam(model, mn.tensor([[[[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 8.0]]]]))
        >>> heat
        tensor([[[0.  , 0.  , 0.  ],
                 [0.  , 0.25, 0.5 ],
                 [0.  , 0.5 , 1.  ]]])

    Selvaraju et al. 2017, "Grad-CAM: Visual Explanations from Deep Networks via Gradient-based Localization".
    """
    if not isinstance(model, Module):
        raise TypeError(f"grad_cam: model is a {kind_of(model)}; expected a Module")
    if not isinstance(images, Tensor) or images.ndim != 4 or not dtypes.is_float(images.dtype) or not images.numel():
        tensor = isinstance(images, Tensor)
        came = f"{images.dtype} of shape {tuple(images.shape)}" if tensor else kind_of(images)
        raise ValueError(f"grad_cam: images is {came}; expected floats N x C x height x width")
    subject = OurModel(model)
    with subject.borrowed(), enable_grad():
        subject.evaluation()
        x = images.detach().to(subject.device).requires_grad_(True)
        scores, maps = _run(model, x, layer)
        chosen = _chosen(scores, target)
        try:
            (gradient,) = grad(chosen.sum(), [maps])
        except RuntimeError as error:
            named = "the last feature maps" if layer is None else f"layer={_name(layer)}"
            raise ValueError(f"grad_cam: no score has a gradient for {named}: {error}") from error
    with no_grad():
        return _heat(maps.detach(), gradient, images.shape[2:])


def _heat(maps: Tensor, gradient: Tensor, size: Any) -> Tensor:
    wide = dtypes.float64 if maps.dtype == dtypes.float64 else dtypes.float32
    maps, gradient = maps.to(wide), gradient.to(wide)
    heat = F.relu((gradient.mean((2, 3), keepdim=True) * maps).sum(1, keepdim=True))
    heat = F.interpolate(heat, size=tuple(size), mode="bilinear", align_corners=False)
    largest = heat.amax((1, 2, 3), keepdim=True)
    return (heat / largest.clamp(min=float(np.finfo(wide).tiny))).squeeze(1)


def _run(model: Module, x: Tensor, layer: Any) -> tuple[Tensor, Tensor]:
    """Run the model.

    Return its scores, and the feature maps of `layer`; if `layer` is None, return the model's last feature maps.
    """
    if layer is None:
        with trace.record() as calls:
            scores = model(x)
        maps = _last_maps(calls)
    else:
        scores, maps = _watched(model, x, layer)
    scores = scores[0] if isinstance(scores, (tuple, list)) else scores
    if not isinstance(scores, Tensor) or scores.ndim != 2 or len(scores) != len(x):
        made = tuple(scores.shape) if isinstance(scores, Tensor) else kind_of(scores)
        raise ValueError(
            f"grad_cam: for {len(x)} image{'' if len(x) == 1 else 's'} the model's output is {made}; expected shape "
            "N x classes"
        )
    return scores, maps


def _last_maps(calls: list[Call]) -> Tensor:
    found = [call for call in _flat(calls) if isinstance(call.result, Tensor) and _are_maps(call.result)]
    sizes = [call.result.shape[2:] for call in found if call.target in CONVOLUTIONS]
    fitting = [call.result for call in found if not sizes or call.result.shape[2:] == sizes[-1]]
    if not fitting:
        raise ValueError(
            "grad_cam: the model has no feature maps N x C x height x width; expected a convolution, or layer=..."
        )
    return fitting[-1]


def _flat(calls: list[Call]) -> Iterator[Call]:
    """Yield these calls and all calls inside them, in the order in which they returned."""
    for call in calls:
        yield from _flat(call.children)
        yield call


def _are_maps(y: Tensor) -> bool:
    """Return whether y is a batch of feature maps: it has four axes and several positions, and it needs a gradient.

    An average over all positions has only one position. A tensor that needs no gradient was not computed from the
    images.
    """
    return y.ndim == 4 and y.shape[2] * y.shape[3] > 1 and y.requires_grad


def _watched(model: Module, x: Tensor, layer: Any) -> tuple[Any, Tensor]:
    """Run the model; return its scores, and the output of the last call of the layer."""
    seen: list[Any] = []
    named = dict(model.named_modules())
    with _listening(named, layer, seen):
        scores = model(x)
    if not seen:
        near = ", ".join(map(quoted, [*filter(None, named)][-8:])) or "a node"
        raise ValueError(
            f"grad_cam: layer={_name(layer)} is not a layer of the model, or the model does not run it; "
            f"expected one of {near}"
        )
    maps = seen[-1][0] if isinstance(seen[-1], (tuple, list)) else seen[-1]
    if not isinstance(maps, Tensor) or maps.ndim != 4:
        made = tuple(maps.shape) if isinstance(maps, Tensor) else kind_of(maps)
        raise ValueError(
            f"grad_cam: the output of layer={_name(layer)} is {made}; expected shape N x C x height x width"
        )
    return scores, maps


def _listening(named: dict[str, Module], layer: Any, seen: list[Any]) -> AbstractContextManager[Any]:
    """Append each output of `layer` to `seen` during the block.

    `layer` may be a module, or the name of a module or of a node of a loaded graph.
    """
    prefix, graph = next(((name, part) for name, part in named.items() if hasattr(part, "watching")), ("", None))
    parts = set() if graph is None else {id(part) for part in graph.modules() if part is not graph}
    module = named.get(layer) if isinstance(layer, str) else layer
    if isinstance(layer, str) and graph is not None and (module is None or id(module) in parts):
        watching: AbstractContextManager[Any] = graph.watching(_node(layer.removeprefix(f"{prefix}."), seen))
        return watching
    if module is not None and any(part is module for part in named.values()):
        return module.register_forward_hook(lambda module, args, output: seen.append(output))  # noqa: ARG005
    return nullcontext()


def _node(name: str, seen: list[Any]) -> Callable[..., None]:
    """Return a function that sees each node of a graph as it runs.

    It appends a node's result to `seen` if the node, its module or one of its outputs is called `name`.
    """

    def see(step: Any, arguments: Any, results: Any, worked: int) -> None:  # noqa: ARG001
        within = step.module == name or step.module.startswith(f"{name}.")
        if within or name in (step.node, *step.names):
            seen.append(results[0])

    return see


def _chosen(scores: Tensor, target: Any) -> Tensor:
    """Return, for each image, the score of the class `target`.

    If `target` is None, this is the class with the highest score.
    """
    count, classes = scores.shape
    given = scores.detach().argmax(1) if target is None else target
    labels = np.asarray(given.detach().cpu().numpy() if isinstance(given, Tensor) else given)
    if labels.dtype.kind not in "iu" or labels.shape not in ((), (count,)) or not _within(labels, classes):
        raise ValueError(f"grad_cam: target={target!r}; expected an int, or {count} of them, from 0 to {classes - 1}")
    places = np.broadcast_to(labels, (count,))
    return combining.stack([scores[i, int(label)] for i, label in enumerate(places)])


def _within(labels: Any, classes: int) -> bool:
    return bool(labels.size) and bool(labels.min() >= 0) and bool(labels.max() < classes)


def _name(layer: Any) -> str:
    return quoted(layer) if isinstance(layer, str) else kind_of(layer)
