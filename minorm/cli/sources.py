"""Opens the MODEL of a command (a run's folder, a checkpoint or an ONNX file), and a data set by its name.

For a run's folder, the best weights are opened, or the last weights if there are no best weights. Opening a file runs
no code from it. An ONNX file is a graph. A checkpoint names a model of `minorm.models` or a Python file, and this
Python file is run only if the user allows it (trust.py).
"""

from __future__ import annotations

import argparse
import functools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import minorm as mn
from minorm import quantization
from minorm.cli import trust
from minorm.cli.options import device_option
from minorm.cli.options.data_option import DataSets, data_and_path, usual_data
from minorm.cli.terminal import extras, output
from minorm.cli.terminal.one_line_errors import UsageError
from minorm.cli.trust import Trust
from minorm.data import DataLoader
from minorm.devices import dtypes
from minorm.nn import Module
from minorm.quantization import QATModel
from minorm.serialization import checkpoint, limits, opening
from minorm.training import Settings, optimizing
from minorm.training.data import file_preprocessing, images
from minorm.training.data.preparing import MEAN_STD, Preprocessing, load_data, loaders, names_of, preprocessing
from minorm.training.files import saved
from minorm.training.files.run_folder import BEST, CHECKPOINT, weights_file
from minorm.training.model import model_building
from minorm.training.model.own_code import is_file, is_graph
from minorm.training.settings import DTYPES, MODEL_FOR

MODEL_HELP = "a run's folder (its best weights), a checkpoint, or an ONNX file"
FACTS, FROZEN = "minorm.model", "minorm.frozen"  # metadata of a file of weights: its model, its frozen layers
PART = "frozen"  # the frozen layers in a training run's checkpoint


@dataclass
class Source:
    """An opened model.

    `path` is the file that was read. `settings` are the settings of the model's run, or None if they are unknown.
    """

    path: str
    kind: str  # "checkpoint" or "onnx"
    model: Any
    facts: dict[str, Any] = field(default_factory=dict)  # the arguments of models.build
    settings: Settings | None = None
    parts: dict[str, Any] | None = None  # a training run's checkpoint
    preprocessing: Preprocessing | None = None  # classes, and scale of pixels, if known
    qat: QATModel | None = None  # for a run with `qat`: the trainable model; `model` is its integer form

    @property
    def image_type(self) -> Any:
        """The type that images must have: the type of the model's weights, or the declared type of a graph's input."""
        if self.kind != "onnx":
            parameters = () if self.model is None else self.model.parameters()  # None: built later, for its images
            return next((p.dtype for p in parameters if p.ndim > 1), mn.float32)
        stated = [entry.dtype for entry in self.model.inputs[:1] if dtypes.is_float(entry.dtype)]
        return self.model.converted_to() or next(iter(stated), mn.float32)

    @property
    def gives_probabilities(self) -> bool:
        """Whether the model is a graph that ends in a Softmax. If it is, no second Softmax may follow."""
        original = self.model.original if self.kind == "onnx" else None
        if original is None or not self.model.output_names:
            return False
        makers = {name: node.op_type for node in original.model.graph.node for name in node.output}
        return makers.get(self.model.output_names[0]) == "Softmax"

    @property
    def takes_one(self) -> bool:
        """Whether the model is a graph that takes only batches of one image. Many exporters write such graphs."""
        shape = self.model.inputs[0].shape if self.kind == "onnx" and self.model.inputs else None
        return bool(shape and shape[0] == 1)

    @functools.cached_property
    def images(self) -> dict[str, Any] | None:
        """The run's record of its images. A file of best weights has no record, so the checkpoint beside it is read."""
        parts = self.parts
        if parts is not None and "images" not in parts and os.path.basename(self.path) == BEST:
            beside = os.path.join(os.path.dirname(self.path), CHECKPOINT)
            parts = saved.read_run(beside) if os.path.exists(beside) else parts
        same = parts is not None and self.parts is not None and parts["model_facts"] == self.parts["model_facts"]
        return parts.get("images") if parts is not None and same else None

    def to(self, device: str) -> Source:
        """Move the model to a device. An integer model computes on the CPU and stays there."""
        if self.qat is not None:
            self.qat = self.qat.to(device=device)
        if self.computes_in_integers:
            return self
        self.model = self.model.to(device=device)
        return self

    @property
    def computes_in_integers(self) -> bool:
        """Whether `model` is the integer form of a model that was trained for int8."""
        return isinstance(self.model, quantization.QuantizedModel)

    def write(self, path: str) -> None:
        """Write the model with its present weights as a file of the same kind as the opened file."""
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


def open_model(
    given: str,
    allowed: Trust = trust.NOTHING,
    *,
    max_bytes: int | None = None,
    external_root: str | None = None,
    dtype: str | None = None,
) -> Source:
    """Open a model; raise ValueError if the file is not a model, and OSError if the file cannot be read.

    allowed    the code that may be run to build a checkpoint's model
    max_bytes  the memory that an ONNX model may take
    external_root  a folder to which links to an ONNX model's weights may lead
    dtype      the type to compute in; None means the type in the file
    """
    path = weights_file(given)
    if _is_checkpoint(path):
        source = _checkpoint(path, allowed)
        source.model = source.model if dtype is None else source.model.to(dtype)
        return source
    extras.need("onnx")
    import minorm.onnx

    most = limits.ONNX if max_bytes is None else max_bytes
    model = minorm.onnx.load(path, max_bytes=most, external_root=external_root, dtype=dtype)
    found = file_preprocessing.read(model.metadata) or file_preprocessing.of_input(model)
    return Source(path, "onnx", model, preprocessing=found)


def opened(args: argparse.Namespace) -> Source:
    """Open the model of a command that has --max-bytes, --external-root and --device, and perhaps --dtype.

    Raises the errors of `device_option.check` before the file is read.
    """
    device_option.check(args)
    source = open_model(
        args.model, allowed(args), max_bytes=args.max_bytes, external_root=args.external_root,
        dtype=getattr(args, "dtype", None),
    )  # fmt: skip
    if source.computes_in_integers and args.device != device_option.DEVICE:
        output.note(f"minorm {args.command}: {source.path} is an int8 model, which computes on the CPU")
    return source.to(args.device)


def open_checkpoint(given: str, allowed: Trust = trust.NOTHING) -> Source:
    """Open a checkpoint, for commands that do not accept ONNX files."""
    return _checkpoint(weights_file(given), allowed)


def _is_checkpoint(path: str) -> bool:
    with opening.regular(path, "open") as file:
        head = file.read(9)
    return path.endswith(".safetensors") or head[8:9] == b"{"  # the length of the header, then JSON


def _checkpoint(path: str, allowed: Trust) -> Source:
    metadata = checkpoint.load_metadata(path)
    parts = settings = found = None
    if FACTS in metadata:
        facts, state = _json(path, metadata, FACTS), checkpoint.load(path)
        frozen = _json(path, metadata, FROZEN) if FROZEN in metadata else []
    elif checkpoint.TREE in metadata:
        parts = checkpoint.load_training(path)
        if not {"model_facts", "model"} <= parts.keys():
            raise ValueError(f"{path} is a checkpoint, but not one of `minorm train`: there is no model_facts in it")
        facts, state, frozen = parts["model_facts"], parts["model"], parts.get(PART, [])
    else:
        raise ValueError(f"{path} does not say which model it holds; build the model in Python, load_state_dict the "
                         "file and call minorm.onnx.export")  # fmt: skip
    named = allowed.model is not None and not is_file(allowed.model) and not is_graph(allowed.model)
    if named and isinstance(facts, dict):
        facts = {**facts, "name": allowed.model}
    facts = model_building.checked(facts, path)
    if parts is not None:
        settings = saved.settings(parts, path) if "settings" in parts else None
        found = _of_its_run({**parts, "model_facts": facts}, settings, path)
    model = model_building.build(**facts, code=trust.code(facts, path, allowed))
    if settings is not None and settings.dtype == "bfloat16":
        model = model.to(mn.bfloat16)
    if settings is not None:
        model = optimizing.prepared(settings, model, facts["channels"], facts["size"])
    saved.restore_part(path, "model", lambda: model.load_state_dict(state))
    _freeze(model, frozen, path)
    qat = model if optimizing.is_ready(model) else None
    model = model if qat is None else quantization.convert(qat)
    return Source(path, "checkpoint", model, facts, settings, parts, found, qat)


def _json(path: str, metadata: Mapping[str, str], name: str) -> Any:
    try:
        return json.loads(metadata[name])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {name} of its metadata is no JSON: {error}") from None


def _of_its_run(parts: Mapping[str, Any], settings: Settings | None, path: str) -> Preprocessing | None:
    """Return the preprocessing in the run's checkpoint.

    If the checkpoint is too old to have preprocessing, return the preprocessing of the data set.
    """
    if "preprocessing" in parts:
        return saved.preprocessing(parts, path)
    if settings is None or settings.data not in MEAN_STD:
        return None
    facts = parts["model_facts"]
    return Preprocessing(names_of(settings.data), *MEAN_STD[settings.data], facts["size"], facts["channels"])


def _freeze(model: Module, names: Any, path: str) -> None:
    modules = dict(model.named_modules())
    for name in names if isinstance(names, list) else [names]:
        if not isinstance(name, str) or name not in modules:
            raise ValueError(f"{path} says that the layer {name!r} is frozen, which the model does not have")
        modules[name].freeze()


def add_data(parser: argparse.ArgumentParser) -> None:
    """Declare the options that name a data set."""
    parser.add_argument("--data", choices=DataSets(MODEL_FOR), help="the images to read: a data set, or the path of a "
                        "folder or a .npz file (default: the images of the run)")  # fmt: skip
    parser.add_argument("--path", help="the path of the images: the folder of mnist, fashion or cifar10, a folder "
                        "with one folder for each class, or a .npz file (default: the path that the run "
                        "recorded)")  # fmt: skip
    add_limit(parser)
    add_code(parser)


def add_code(parser: argparse.ArgumentParser) -> None:
    """Declare the options for the code that builds a checkpoint's model."""
    parser.add_argument("--model", dest="instead", metavar="FILE.py:FUNCTION", help="build the model with this file "
                        "of yours, if the run was trained with such a file")  # fmt: skip
    trust.add(parser)


def allowed(args: argparse.Namespace) -> Trust:
    """Return which code the command-line options allow to run."""
    return trust.of(args, args.instead)


def add_dtype(parser: argparse.ArgumentParser) -> None:
    """Declare the option for the type to compute in."""
    parser.add_argument(
        "--dtype", choices=DTYPES, help="the type of weights and activations (default: that of the file)"
    )


def add_limit(parser: argparse.ArgumentParser) -> None:
    """Declare the option that limits the memory for reading a file."""
    parser.add_argument(
        "--max-bytes",
        type=int,
        metavar="N",
        help="the most memory that a file may take when it is read: an ONNX model, an .npz or IDX file, or a picture; "
        "the error message names the default",
    )


@dataclass
class Chosen:
    """The data set that a command reads.

    known    the run's record of its images; None if the run used other data
    dtype    the type in which the model takes images
    """

    settings: Settings
    found: Preprocessing | None
    path: str | None
    known: dict[str, Any] | None
    max_bytes: int | None
    dtype: str = "float32"

    def sets(self) -> tuple[Any, Any]:
        """Return (training, validation) images, in the split of the run."""
        loaded = load_data(self.settings, self.path, self.found, self.max_bytes)
        return images.with_split_of_run(self.known, loaded, self.settings.seed)

    def loaders(self, train: Any, scored: Any) -> tuple[DataLoader, DataLoader]:
        """Return a loader of training batches, and a loader that gives the images `scored` in their stored order.

        Both loaders read all images, even if the run had several ranks.
        """
        size = min(self.settings.batch_size, len(train))  # so that there is a batch
        settings = replace(self.settings, batch_size=size, ranks=1, dtype=self.dtype)
        return loaders(settings, train, scored, self.found or preprocessing(settings, train))


def choose(source: Source, args: argparse.Namespace) -> Chosen:
    """Choose the data set that the options name. If they name none, choose the run's data set at its recorded path.

    Raises UsageError if neither the options nor the run names a data set.
    """
    settings, found = source.settings, source.preprocessing
    dtype = "bfloat16" if source.image_type == mn.bfloat16 else "float32"
    name, path = data_and_path(args)
    if name is None and path is not None and (settings is None or settings.data == "digits"):
        name = usual_data(path)
    if name is None and settings is None:
        raise UsageError(f"{source.path} does not say what it was trained on; expected --data {'|'.join(MODEL_FOR)}")
    check_path(name, path)
    if settings is None or name not in (None, settings.data):
        settings = _of_no_run(name, args) if settings is None else replace(settings, data=name, fold="none")
        found = found if name == "folder" or source.settings is None else None  # other data sets have their own form
        return Chosen(settings, found, path, None, args.max_bytes, dtype)
    if path is None and (path := images.place(source.images, source.path)) is not None:
        tell_place(path)
    return Chosen(settings, found, path, source.images, args.max_bytes, dtype)


def _of_no_run(name: str, args: argparse.Namespace) -> Settings:
    """Return settings for a model whose run is unknown. The images' size is --image-size if the command has it."""
    size = getattr(args, "image_size", None)
    return Settings(data=name) if size is None else Settings(data=name, image_size=size)


def tell_place(path: str) -> None:
    """Print the path from which images will be read. A run that comes from a stranger may name any path."""
    output.note(f"minorm: reading the images in {path}, the path that the run recorded")


def check_path(name: str | None, path: str | None) -> None:
    """Raise UsageError if --path is given together with `--data digits`.

    The digits come with scikit-learn and need no path.
    """
    if name == "digits" and path is not None:
        raise UsageError(
            f"--path {path} is given, but the digits are read from scikit-learn; expected another --data, such as "
            "folder, or no --path"
        )


def training_loader(source: Source, args: argparse.Namespace) -> DataLoader:
    """Return training batches, scaled and augmented as in the run.

    Raises UsageError if neither the run nor --data names a data set.
    """
    chosen = choose(source, args)
    return chosen.loaders(*chosen.sets())[0]
