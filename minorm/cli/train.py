"""`minorm train`: a training run in a folder, with progress, a log, a checkpoint an epoch, and --resume."""

from __future__ import annotations

import argparse
import os
from dataclasses import fields
from typing import Any

import minorm as mn
from minorm import models
from minorm.checkpoint import load_training
from minorm.cli import extras
from minorm.training import Run, Settings
from minorm.training.run import CHECKPOINT, LOG, Row
from minorm.training.settings import MODEL_FOR, OPTIMIZERS, SCHEDULES


def add(commands: Any) -> None:
    """Declare the command."""
    defaults = Settings()
    parser = commands.add_parser(
        "train",
        help="train a CNN on the digits, MNIST, Fashion-MNIST or CIFAR-10",
        description="Train a CNN. After every epoch DIR/checkpoint.safetensors and DIR/log.csv are replaced; Ctrl-C "
        "stops at once, and --resume goes on from the last finished epoch to the same bits.",
    )
    # A default of None: what was not said is what the checkpoint says, or else the default of Settings.
    parser.add_argument("--data", choices=list(MODEL_FOR), help=f"images to train on (default {defaults.data})")
    parser.add_argument("--path", metavar="DIR", help="folder with the files of mnist, fashion or binary cifar10")
    parser.add_argument("--model", choices=list(models.BY_NAME), help="default: the usual one for the data")
    parser.add_argument("--epochs", type=int, metavar="N", help=f"default {defaults.epochs}")
    parser.add_argument("--batch-size", type=int, metavar="N", help=f"default {defaults.batch_size}")
    parser.add_argument("--lr", type=float, help="largest learning rate (default 0.05 for sgd, 0.003 for adam, adamw)")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, help=f"default {defaults.optimizer}, with momentum 0.9")
    parser.add_argument("--schedule", choices=SCHEDULES, help=f"of the learning rate (default {defaults.schedule})")
    parser.add_argument("--weight-decay", type=float, metavar="X", help=f"default {defaults.weight_decay}")
    parser.add_argument("--label-smoothing", type=float, metavar="X", help=f"default {defaults.label_smoothing}")
    parser.add_argument("--seed", type=int, metavar="N", help="of split, weights and order (default 0)")
    parser.add_argument("--threads", type=int, metavar="N", help="processors to use (default all); changes no result")
    parser.add_argument("--device", default="cpu", metavar="NAME", help="cpu (default), cuda or cuda:1")
    parser.add_argument("--out", metavar="DIR", help="where files go (default runs/DATA-MODEL)")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out, with its settings")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train; returns 0, or raises what `main` turns into a message."""
    extras.need("rich")
    from rich.console import Console

    from minorm.progress import TrainingBar

    if args.threads is not None:
        mn.set_num_threads(args.threads)
    training = _open(args)
    out, settings = training.out, training.settings
    assert out is not None
    console = Console(highlight=False)
    console.print(
        f"{settings.data} with model {settings.model}: {training.images['train']:,} images to train, "
        f"{training.images['test']:,} to test, {mn.get_num_threads()} threads; writes {out}",
        soft_wrap=True,
    )
    try:
        with TrainingBar(console, "training", training.steps, training.epoch * len(training.train_loader)) as bar:
            training.fit(bar.after_step, lambda row: console.print(_line(row, settings.epochs), soft_wrap=True))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_how_to_go_on(out, args)) from None
    console.print(f"done: {os.path.join(out, CHECKPOINT)} and {os.path.join(out, LOG)}", soft_wrap=True)
    return 0


def _how_to_go_on(out: str, args: argparse.Namespace) -> str:
    """What is on the disk, as the file itself says it: Ctrl-C may come before the first was written, or between two."""
    path = os.path.join(out, CHECKPOINT)
    if not os.path.exists(path):
        return "nothing was written yet"
    return (
        f"{path} holds the end of epoch {load_training(path)['epoch']}; go on with: minorm train --resume --out {out}"
        + (f" --path {args.path}" if args.path else "")
        + (f" --device {args.device}" if args.device != "cpu" else "")
    )


def _open(args: argparse.Namespace) -> Run:
    """A new run, or the one to go on with."""
    names = [field.name for field in fields(Settings)]
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if not args.resume:
        settings = Settings(**given)
        out = args.out or os.path.join("runs", f"{settings.data}-{settings.model}")
        if os.path.exists(os.path.join(out, CHECKPOINT)):
            raise ValueError(f"{out} holds a run already; go on with it (--resume) or choose another --out")
        return Run(settings, out, args.path, args.device)
    if not args.out:
        raise ValueError("--resume needs --out DIR, the folder of the run to go on with")
    training = Run.resume(args.out, args.path, args.device)
    for name, value in given.items():
        if value != getattr(training.settings, name):
            raise ValueError(
                f"the run in {args.out} has {name}={getattr(training.settings, name)!r}, --resume goes on with "
                f"that; got {value!r}; for another value start a new run with another --out"
            )
    return training


def _line(row: Row, epochs: int) -> str:
    width = len(str(epochs))
    train, test = (_score(part, row[f"{part}_loss"], row[f"{part}_accuracy"]) for part in ("train", "test"))
    return f"epoch {row['epoch']:{width}}/{epochs}  {train}  {test}  {row['images_per_second']:,.0f} images/s"


def _score(part: str, loss: float, accuracy: float | None) -> str:
    return f"{part} loss {loss:.4f}" + ("" if accuracy is None else f" accuracy {accuracy:7.2%}")
