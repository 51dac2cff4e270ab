"""Begin a new run: load the weights of a file, choose the head, and freeze layers."""

from __future__ import annotations

import os
from typing import Any

from minorm.nn import Module
from minorm.quantization import QATModel
from minorm.serialization import checkpoint
from minorm.support.safe_names import quoted
from minorm.training.data.preparing import Preprocessing, folder_of
from minorm.training.files.run_folder import weights_file
from minorm.training.model import initial
from minorm.training.model.initial import Initial
from minorm.training.model.onnx_graph import Graph
from minorm.training.model.running_order import Freezing, Layers
from minorm.training.settings import Settings


def fit_channels(sets: Any, code: Any) -> None:
    """Make folders of pictures give as many channels as the graph's input has, such as 1 for grey."""
    if isinstance(code, Graph) and code.classifier.input.channels is not None:
        for folder in filter(None, map(folder_of, sets)):
            folder.channels = code.classifier.input.channels


def keeps_head(settings: Settings, code: Any, found: Preprocessing) -> bool:
    """Return whether the head of a graph stays as it is in the file."""
    is_graph = isinstance(code, Graph) and not settings.new_head
    return is_graph and code.keeps_head(found.channels, found.size, found.classes)


def weights_of(init: str | None, code: Any) -> str | None:
    """Return the file of weights `init`. If it is the graph's file, which already has its weights, return None."""
    is_graph = init is not None and isinstance(code, Graph) and os.path.abspath(init) == os.path.abspath(code.path)
    return None if is_graph else init


def layers_of(settings: Settings, model: Module, found: Preprocessing, init: str | None) -> Layers | None:
    """Return the model's layers in the order in which they run. If no setting needs them, return None."""
    if init is None and not settings.frozen_epochs and settings.layer_decay == 1:
        return None
    layers = Layers(model, found.channels, found.size)
    for name, usual in (("freeze", 0), ("layer_decay", 1.0)):
        if getattr(settings, name) != usual:
            layers.check_head(f"{name}={getattr(settings, name)!r}")
    return layers


def begin(
    settings: Settings, model: Module, layers: Layers | None, found: Preprocessing, code: Any, init: str | None
) -> Initial | None:
    """Load the weights of `init` if it is given.

    Return a description of the initial weights, or None if all weights are random.
    """
    if init is None or layers is None:
        if not isinstance(code, Graph):
            return None
        return _of_graph(code, model, found, keeps_head(settings, code, found))
    if settings.new_head:
        layers.check_head("new_head=True")
        return initial.begin(model, init, layers.names, ["the head is initialized anew, because new_head is set"])
    classes = _classes(weights_file(init))
    if classes and len(classes) == len(found.classes) and classes != found.classes:
        layers.check_head("a model with other classes")
        other = next((a, b) for a, b in zip(classes, found.classes, strict=True) if a != b)
        why = f"the file has the class {quoted(other[0])} in the place of {quoted(other[1])}"
        return initial.begin(model, init, layers.names, [f"the head is initialized anew, because {why}"])
    begun = initial.begin(model, init)
    anew = {entry.split(" ")[0] for entry in begun.reshaped} | {*begun.missing}
    if layers.head and anew.isdisjoint(layers.names):
        begun.notes.append(
            "the head is kept, because the classes are the same"
            if classes
            else "the head is kept, because it has the same number of classes; the file has no class names"
        )
        begun.notes[-1] += "; --new-head initializes the head anew"
    return begun


def freezing(settings: Settings, model: Module, layers: Layers | None) -> Freezing | None:
    """Return the object that freezes and thaws all layers but the head; return None if the settings freeze nothing."""
    if not settings.frozen_epochs or layers is None:
        return None
    return Freezing(model.model if isinstance(model, QATModel) else model, layers.head)


def _of_graph(code: Graph, model: Module, found: Preprocessing, keeps: bool) -> Initial:
    """Describe the initial weights of a graph's network and the changes to the graph."""
    file = code.classifier
    head, given = file.head(found.channels, found.size), file.input
    said = f"the head {quoted(head.name)}, a {head.operator} of {head.features:,} numbers"
    if keeps:
        notes = [f"{said}, is kept, because the classes are the same; --new-head initializes it anew"]
    else:
        notes = [f"{said} for {head.classes:,} classes, is initialized anew"]
    if head.activation:
        notes.append(f"its {head.activation} is left out, because the loss takes logits")
    if given.channels_last:
        notes.append("its input is channels-last, so a Transpose was added in front")
    if given.batch is not None:
        notes.append(f"its batch size of {given.batch} was made free")
    if len(file.outputs) > 1:
        notes.append(f"it has {len(file.outputs)} outputs, of which only {quoted(head.part.output)} is trained")
    if frozen := sum(module.frozen for module in model.modules()):
        notes.append(f"{frozen} of its layers are frozen in the file, and stay frozen")
    taken = len(model.state_dict()) - (0 if keeps else len(head.weights))
    return Initial(code.file, code.sha256, taken, [], [], [], notes)


def _classes(path: str) -> list[str]:
    """Return the names of the classes in a file that a run wrote; return an empty list for any other file."""
    if not path.endswith(".safetensors") or checkpoint.TREE not in checkpoint.load_metadata(path):
        return []
    said = checkpoint.load_training(path).get("preprocessing")
    names = said.get("classes") if isinstance(said, dict) else None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
