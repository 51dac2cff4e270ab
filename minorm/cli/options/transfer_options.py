"""Declares and applies the options of `minorm train` for pretrained weights: --init, --freeze and others."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from minorm.cli import trust
from minorm.cli.options import external_root
from minorm.cli.terminal import extras
from minorm.cli.terminal.one_line_errors import UsageError
from minorm.training import Run
from minorm.training.model.own_code import is_file, is_graph
from minorm.training.model.pretrained import Pretrained, said
from minorm.training.settings import ALL, numbers

RANGES = ("1", "255")
NEEDED = (("freeze", 0), ("layer_decay", 1.0), ("new_head", False))  # options for weights, and values without effect


def add(parser: argparse.ArgumentParser, option: Any) -> None:
    """Declare the options for pretrained weights: --init, --freeze and others."""
    option("--init", metavar="FILE", help="begin with the weights of an ONNX file from any framework, a run's folder, "
           "a checkpoint, or a .safetensors, .npz or .pt file. Without --model an ONNX file or a run also determines "
           "the model. With --model the weights that fit by name and shape are taken. If the classes differ, the last "
           "layer is initialized anew")  # fmt: skip
    parser.add_argument("--new-head", action="store_const", const=True, help="with --init: initialize the last layer "
                        "anew even if the classes are the same")  # fmt: skip
    option("--freeze", type=epochs, metavar="N|all", help="train only the head for N epochs, or to the end: all other "
           "layers and their statistics stay as in --init. After these epochs all layers are trained, and the "
           "learning rate schedule begins again")  # fmt: skip
    option("--layer-decay", type=float, metavar="X", help="the factor of the learning rate from each group of layers "
           "to the group before it, beginning at the head, in at most 12 groups (default 1)")  # fmt: skip
    option("--mean", metavar="M,M,M", help="the mean of each channel, which is subtracted from the pixels (default: "
           "the mean in the file of --init, or the usual mean for the data)")  # fmt: skip
    option(
        "--std", metavar="S,S,S", help="the standard deviation of each channel, by which the pixels are then divided"
    )
    option("--pixel-range", choices=RANGES, help="the value of white for --mean and --std (default 1); with 255, and "
           "no --mean and --std, the model gets numbers from 0 to 255")  # fmt: skip
    external_root.add(parser)


def epochs(text: str) -> int | str:
    """Return a number of epochs, or `all`."""
    return text if text == ALL else int(text)


def resolve(args: argparse.Namespace) -> Pretrained | None:
    """Read the file of --init, and take the model from this file if --model is missing.

    Raises UsageError if options contradict each other, or if the model needs code that the user has not allowed.
    """
    scale(args)
    if args.init is None and args.model is not None and is_graph(args.model):
        args.init = args.model
    if args.init is None:
        own = args.model is not None and is_file(args.model)
        for name, usual in NEEDED:
            if getattr(args, name) not in (None, usual) and not own:
                raise UsageError(f"--{name.replace('_', '-')} needs initial weights; expected --init FILE as well")
        return None
    if is_graph(args.init):
        extras.need("onnx")
    found = Pretrained.read(args.init, args.max_bytes, args.external_root)
    if found.graph is not None and args.model in (None, args.init):
        args.model, args.code, args.init = args.init, found.graph, None
    elif args.model is None and found.facts is not None:
        args.model = found.facts["name"]
        args.code = trust.code(found.facts, found.path, trust.of(args, None))
    return found


def fill(args: argparse.Namespace, found: Pretrained, data: str) -> None:
    """Set the image size, mean and std to those in the file of --init. Values on the command line stay."""
    for name, value in found.form(data).items():
        if getattr(args, name) is None:
            setattr(args, name, value)


def check_same_scaling(args: argparse.Namespace, found: Mapping[str, Any]) -> None:
    """Raise ValueError if --mean, --std or --pixel-range would scale pixels differently from the run in --out.

    found  the checkpoint of the run
    """
    scale(args)
    for name in ("mean", "std"):
        given, run = getattr(args, name), list(found.get("preprocessing", {}).get(name, []))
        if given is not None and numbers(given) not in (run, run[:1] if len(set(run)) == 1 else run):
            among = "" if args.pixel_range is None else f" by --pixel-range {args.pixel_range}"
            raise ValueError(
                f"{name} is {given!r}{among}; expected {said(run)} for pixels from 0 to 1, as in the run in "
                f"{args.out}, because --resume keeps the scaling of the pixels; for another value start a new run with "
                "another --out"
            )


def sentences(training: Run) -> Iterator[str]:
    """Yield a line if the settings freeze layers, and a line if the layers have different learning rates."""
    settings = training.settings
    if settings.frozen_epochs:
        until = (
            f"for {settings.frozen_epochs} of {settings.epochs} epochs; then all layers are trained, and the "
            "learning rate "
        )
        until += "begins anew" if settings.schedule != "constant" or settings.warmup_epochs else "stays"
        until = "to the end" if settings.frozen_epochs == settings.epochs else until
        yield f"freeze {settings.freeze}: only the head is trained {until}"
    if settings.layer_decay != 1:
        first, *_, last = training.rates
        yield (f"layer-decay {settings.layer_decay:g}: the largest learning rate is {first:.3g} for the head, and "
               f"{last:.3g} for the first layers, in {len(training.rates)} groups")  # fmt: skip


def scale(args: argparse.Namespace) -> None:
    """Convert --mean and --std to the scale of Settings, in which pixels are from 0 to 1."""
    if args.pixel_range is None:
        return
    white = float(args.pixel_range)
    if args.mean is None and args.std is None:
        args.mean, args.std = "0", said([1 / white])
        return
    for name in ("mean", "std"):
        values = numbers(getattr(args, name) or "")
        if values:  # Settings names a value that is not a number
            setattr(args, name, said([value / white for value in values]))
