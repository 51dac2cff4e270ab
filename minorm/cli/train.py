"""`minorm train`: a training run in a folder, with progress, a log, a checkpoint an epoch, and --resume."""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import minorm as mn
from minorm import distributed, models
from minorm.checkpoint import load_training
from minorm.cli import extras
from minorm.cli.errors import EXPECTED
from minorm.distributed import Group
from minorm.distributed.launcher import launched
from minorm.training import Run, Settings
from minorm.training.run import CHECKPOINT, LOG, Row
from minorm.training.settings import MODEL_FOR, OPTIMIZERS, SCHEDULES, load_data


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
    parser.add_argument(
        "--ranks",
        type=int,
        metavar="S",
        help="parts of each batch, which have a model each and share batch statistics; the number decides the bits "
        "(default: as many as processes)",
    )
    parser.add_argument(
        "--distributed",
        action="store_true",
        help="the processes of mpiexec or srun train one model together: mpiexec -n 4 minorm train --distributed ...",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="that a process waits for the others (default 300)",
    )
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out, with its settings")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train; returns 0, or raises what `main` turns into a message. 2 for several processes without --distributed."""
    extras.need("rich")
    process, processes = launched()
    if processes > 1 and not args.distributed:
        if process == 0:
            print(
                f"minorm train: it was started as {processes} processes, and each would train alone and write over the "
                "others' files; to train one model together add --distributed",
                file=sys.stderr,
            )
        return 2
    settings = _settings(args)
    ranks = settings.ranks if args.resume or args.ranks is not None else processes
    settings = replace(settings, ranks=ranks)
    load = functools.cache(lambda: load_data(settings.data, args.path, settings.seed))  # once a process
    distributed.run(
        lambda group: _train(args, settings, group, load),
        ranks,
        device=args.device,
        timeout=args.timeout,
        brief=() if args.traceback else EXPECTED,
    )
    return 0


def _train(args: argparse.Namespace, settings: Settings, group: Group, load: Callable[[], Any]) -> None:
    """One rank; rank 0 alone shows something."""
    from rich.console import Console

    from minorm.progress import TrainingBar

    if args.threads is not None:
        mn.set_num_threads(args.threads)
    training = _open(args, settings, group, load)
    if group.rank:
        training.fit()
        return
    out = training.out
    assert out is not None
    console = Console(highlight=False)
    console.print(
        f"{settings.data} with model {settings.model}: {training.images['train']:,} images to train, "
        f"{training.images['test']:,} to test, {_workers(group)}; writes {out}",
        soft_wrap=True,
    )
    try:
        with TrainingBar(console, "training", training.steps, training.epoch * len(training.train_loader)) as bar:
            training.fit(bar.after_step, lambda row: console.print(_line(row, settings.epochs), soft_wrap=True))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_how_to_go_on(out, args, group)) from None
    console.print(f"done: {os.path.join(out, CHECKPOINT)} and {os.path.join(out, LOG)}", soft_wrap=True)


def _workers(group: Group) -> str:
    """`2 threads`, or `4 ranks on 2 processes, 1 thread each`."""
    threads = mn.get_num_threads()
    said = f"{threads} thread{'s' if threads != 1 else ''}"
    if group.size == 1:
        return said
    return f"{group.size} ranks on {group.processes} process{'es' if group.processes != 1 else ''}, {said} each"


def _how_to_go_on(out: str, args: argparse.Namespace, group: Group) -> str:
    """What is on the disk, as the file itself says it: Ctrl-C may come before the first was written, or between two."""
    path = os.path.join(out, CHECKPOINT)
    if not os.path.exists(path):
        return "nothing was written yet"
    train = f"mpiexec -n {group.processes} minorm train --distributed" if group.processes > 1 else "minorm train"
    return (
        f"{path} holds the end of epoch {load_training(path)['epoch']}; go on with: {train} --resume --out {out}"
        + (f" --path {args.path}" if args.path else "")
        + (f" --device {args.device}" if args.device != "cpu" else "")
    )


def _settings(args: argparse.Namespace) -> Settings:
    """What was asked for, or what the run to go on with has; ValueError where both are said and differ."""
    names = [field.name for field in fields(Settings)]
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if not args.resume:
        return Settings(**given)
    if not args.out:
        raise ValueError("--resume needs --out DIR, the folder of the run to go on with")
    settings = Run.settings_of(args.out)
    for name, value in given.items():
        if value != getattr(settings, name):
            raise ValueError(
                f"the run in {args.out} has {name}={getattr(settings, name)!r}, --resume goes on with "
                f"that; got {value!r}; for another value start a new run with another --out"
            )
    return settings


def _open(args: argparse.Namespace, settings: Settings, group: Group, load: Callable[[], Any]) -> Run:
    """A new run, or the one to go on with."""
    if args.resume:
        return Run.resume(args.out, args.path, group.device, group, load())
    out = args.out or os.path.join("runs", f"{settings.data}-{settings.model}")
    if group.rank == 0 and os.path.exists(os.path.join(out, CHECKPOINT)):
        raise ValueError(f"{out} holds a run already; go on with it (--resume) or choose another --out")
    group.barrier()  # rank 0 has looked before anybody writes
    return Run(settings, out, args.path, group.device, group, load())


def _line(row: Row, epochs: int) -> str:
    width = len(str(epochs))
    train, test = (_score(part, row[f"{part}_loss"], row[f"{part}_accuracy"]) for part in ("train", "test"))
    return f"epoch {row['epoch']:{width}}/{epochs}  {train}  {test}  {row['images_per_second']:,.0f} images/s"


def _score(part: str, loss: float, accuracy: float | None) -> str:
    return f"{part} loss {loss:.4f}" + ("" if accuracy is None else f" accuracy {accuracy:7.2%}")
