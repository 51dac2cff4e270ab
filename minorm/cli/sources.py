"""What commands are given: a MODEL (a run's folder, a checkpoint or an ONNX file), and a data set by its name.

A run's folder stands for its best weights where there are any, else for its last. Nothing in a file is executed: a
checkpoint names one of `minorm.models`, and an ONNX file is a graph.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import minorm as mn
from minorm import checkpoint, models, opening
from minorm.cli import extras
from minorm.cli.errors import UsageError
from minorm.data import DataLoader
from minorm.nn import Module
from minorm.training import Settings
from minorm.training.run import CHECKPOINT
from minorm.training.settings import MODEL_FOR, load_data, loaders

MODEL_HELP = "a run's folder (its best weights), a checkpoint, or an ONNX file"
BEST = "best.safetensors"
FACTS, FROZEN = "minorm.model", "minorm.frozen"  # metadata of a file of weights: what to build, which layers are frozen
PART = "frozen"  # the same of a training run's checkpoint


@dataclass
class Source:
    """A model that was found. path: the file that was taken; settings: of the run it comes from, None where unknown."""

    path: str
    kind: str  # "checkpoint" or "onnx"
    model: Any
    facts: dict[str, Any] = field(default_factory=dict)  # the arguments of models.build
    settings: Settings | None = None
    parts: dict[str, Any] | None = None  # a training run's checkpoint

    def write(self, path: str) -> None:
        """The model as it is now, as a file of the kind it came from."""
        if self.kind == "onnx":
            import minorm.onnx

            minorm.onnx.export(self.model, None, path)
            return
        frozen = [name for name, module in self.model.named_modules() if module.frozen]
        if self.parts is not None:
            checkpoint.save_training(path, **{**self.parts, "model": self.model, PART: frozen})
            return
        facts = {FACTS: json.dumps(self.facts), FROZEN: json.dumps(frozen)}
        mn.save(self.model.state_dict(), path, metadata=facts)


def find(given: str) -> str:
    """The file that a MODEL means."""
    if not os.path.isdir(given):
        return given
    paths = [os.path.join(given, name) for name in (BEST, CHECKPOINT)]
    for path in paths:
        if os.path.exists(path):
            return path
    raise FileNotFoundError(f"{given} is a folder without {BEST} and {CHECKPOINT}; expected that of a run")


def open_model(given: str) -> Source:
    """The model; ValueError where the file is none of the three, OSError where it cannot be read."""
    path = find(given)
    if _is_checkpoint(path):
        return _checkpoint(path)
    extras.need("onnx")
    import minorm.onnx

    return Source(path, "onnx", minorm.onnx.load(path))


def open_checkpoint(given: str) -> Source:
    """The same for commands that take no ONNX file."""
    return _checkpoint(find(given))


def _is_checkpoint(path: str) -> bool:
    with opening.regular(path, "open") as file:
        head = file.read(9)
    return path.endswith(".safetensors") or head[8:9] == b"{"  # the length of the header, then JSON


def _checkpoint(path: str) -> Source:
    metadata = checkpoint.load_metadata(path)
    parts = settings = None
    if FACTS in metadata:
        facts, state = json.loads(metadata[FACTS]), checkpoint.load(path)
        frozen = json.loads(metadata.get(FROZEN, "[]"))
    elif checkpoint.TREE in metadata:
        parts = checkpoint.load_training(path)
        if not {"model_facts", "model"} <= parts.keys():
            raise ValueError(f"{path} is a checkpoint, but not one of `minorm train`: there is no model_facts in it")
        facts, state, frozen = parts["model_facts"], parts["model"], parts.get(PART, [])
        settings = Settings(**parts["settings"]) if "settings" in parts else None
    else:
        raise ValueError(f"{path} does not say which model it holds; build the model in Python, load_state_dict the "
                         "file and call minorm.onnx.export")  # fmt: skip
    model = models.build(**facts)
    model.load_state_dict(state)
    _freeze(model, frozen, path)
    return Source(path, "checkpoint", model, facts, settings, parts)


def _freeze(model: Module, names: Sequence[str], path: str) -> None:
    modules = dict(model.named_modules())
    for name in names:
        if name not in modules:
            raise ValueError(f"{path} says that the layer {name!r} is frozen, which the model does not have")
        modules[name].freeze()


def add_data(parser: argparse.ArgumentParser) -> None:
    """Declare the options that name a data set."""
    parser.add_argument("--data", choices=list(MODEL_FOR), help="images to read; default: those of the run")
    parser.add_argument("--path", metavar="DIR", help="folder with the files of mnist, fashion or binary cifar10")


def training_loader(source: Source, args: argparse.Namespace) -> DataLoader:
    """The training images in the batches of the run, scaled and augmented as there; UsageError where --data is missing.

    Another --data than the run's is taken as asked.
    """
    settings = source.settings
    if args.data is None and settings is None:
        raise UsageError(f"{source.path} does not say what it was trained on; expected --data {'|'.join(MODEL_FOR)}")
    if settings is None:
        settings = Settings(data=args.data)
    elif args.data is not None and args.data != settings.data:
        settings = replace(settings, data=args.data)
    train, test = load_data(settings.data, args.path, settings.seed)
    settings = replace(settings, ranks=1)  # one process reads all of a batch
    return loaders(settings, train, test)[0]
