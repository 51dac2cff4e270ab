"""`minorm train` trains a model and writes a log, a checkpoint each epoch and a report; --resume continues a run."""

from __future__ import annotations

import argparse
import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import minorm as mn
import minorm_ext
from minorm import distributed
from minorm.cli import config, sources, trust
from minorm.cli.options import device_option, logger_option, train_options, transfer_options
from minorm.cli.options.device_option import DEVICE
from minorm.cli.options.train_options import TIMEOUT
from minorm.cli.terminal import output, words
from minorm.cli.terminal.one_line_errors import EXPECTED, UsageError
from minorm.cli.terminal.training_progress import LineDisplay, training_display
from minorm.cli.views import run_report
from minorm.distributed import Group
from minorm.distributed.launcher import launched
from minorm.distributed.simulation import check_threads
from minorm.serialization.checkpoint import load_training
from minorm.training import Run, Settings, choose_settings
from minorm.training.data import images
from minorm.training.data.defaults import MOST_EPOCHS, OWN
from minorm.training.data.majority_guess import largest_class
from minorm.training.data.preparing import load_data
from minorm.training.files import resuming, saved
from minorm.training.files.log_file import LOG, Row
from minorm.training.files.run_folder import BEST, CHECKPOINT, locked
from minorm.training.model.own_code import is_file, is_graph, split
from minorm.training.settings import USUAL_DATA, fold_of


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "train",
        help="train a CNN on your own images, the digits, MNIST, Fashion-MNIST or CIFAR-10",
        description="Train a CNN, for example by `minorm train --path images/`, where images/ has one folder for each "
        "class, or train/ and, optionally, val/ and test/ with such folders. After every epoch "
        "DIR/checkpoint.safetensors, DIR/best.safetensors and DIR/log.csv are replaced; at the end DIR/report.html and "
        "DIR/outcome.json are written. Ctrl-C stops at once; --resume continues after the last finished epoch, and the "
        "final weights are the same bits as without a stop. For your own images, settings that you do not give are "
        "chosen to suit the images, and printed with the reason.",
    )
    train_options.add(parser)
    parser.set_defaults(run=functools.partial(run, parser))


def run(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    """Train and return 0. Return 2 if several processes were started without --distributed."""
    said = config.read(args.config, parser) if args.config else {}
    for name, value in {"device": DEVICE, "timeout": TIMEOUT, **said}.items():
        if getattr(args, name) is None or getattr(args, name) is False:  # False: a switch that was not given
            setattr(args, name, value)
    process, processes = launched()
    if processes == 1:  # each of several processes takes a GPU, and ends the job if its machine has none
        device_option.check(args)
    if processes > 1 and not args.distributed:
        if process == 0:
            output.note(
                f"minorm train: the launcher started {processes} processes, and each would train its own model and "
                "overwrite the files of the others; add --distributed to train one model with all processes"
            )
        return 2
    if args.other_images and not args.resume:
        raise UsageError("--other-images needs --resume")
    if args.trust and not args.resume and args.init is None:
        raise UsageError("--trust needs --resume or --init")
    if args.init is not None and args.resume:
        raise UsageError("--init is only for a new run; with --resume the run continues with its own weights")
    logger_option.check(args.logger)
    if args.path is not None and args.data is None and not args.resume:
        args.data = sources.usual_data(args.path)
    given, args.code, args.pretrained = args.path, None, None
    args.said = {name for name in ("image_size", "mean", "std") if getattr(args, name) is not None}
    if not args.resume and (found := transfer_options.resolve(args)) is not None:
        args.pretrained = found
        transfer_options.fill(args, found, args.data or USUAL_DATA)
    settings = _settings(args)
    if given is None and args.path is not None and process == 0:
        sources.tell_place(args.path)
    sources.check_path(settings.data, args.path)
    ranks = settings.ranks if args.resume or args.ranks is not None else processes
    check_threads(f"ranks is {ranks}", ranks, processes)
    settings, reasons = replace(settings, ranks=ranks), dict[str, str]()
    load = functools.cache(lambda: load_data(settings, args.path, max_bytes=args.max_bytes))  # once a process
    if settings.data in OWN and not args.resume:
        settings, reasons, sets = choose_settings(
            args.path, args.max_bytes, **{**train_options.given(args), "ranks": ranks}
        )
        load = functools.cache(lambda: sets)
    distributed.run(
        lambda group: _train(args, settings, reasons, group, load),
        ranks,
        device=args.device,
        timeout=args.timeout,
        brief=() if args.traceback else EXPECTED,
    )
    return 0


def _train(
    args: argparse.Namespace, settings: Settings, reasons: Mapping[str, str], group: Group, load: Callable[[], Any]
) -> None:
    """Train one rank; only rank 0 prints."""
    if args.threads is not None:
        mn.set_num_threads(args.threads)
    part = fold_of(settings.fold)
    name = f"{settings.data}-{_short(settings.model)}{f'-fold{part[0]}of{part[1]}' if part else ''}"
    out = args.out or os.path.join("runs", name)
    if group.rank:
        _open(args, out, settings, group, load).fit()
        return
    with locked(out):
        _shown(args, _open(args, out, settings, group, load), reasons, out, group)


def _shown(args: argparse.Namespace, training: Run, reasons: Mapping[str, str], out: str, group: Group) -> None:
    """Train to the end, and print the progress and the result."""
    settings, told, start = training.settings, training_display(), time.perf_counter()
    told.say(
        f"{settings.data} with model {settings.model}: {training.images['train']:,} images to train, "
        f"{training.images['validation']:,} to validate, {_workers(group)}; writes {out}"
    )
    for line in [*words.left_out(training.sets), *_beginning(args, training, reasons)]:
        told.say(line)
    loggers = [] if training.finished else logger_option.callbacks(args.logger, out)

    def after_epoch(row: Row) -> None:
        told.say(_line(row, settings.epochs))

    try:
        with told.following(training.steps, training.epoch * training.steps_per_epoch) as after_step:
            training.fit(after_step, after_epoch, loggers)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_how_to_go_on(out, args, group)) from None
    _tell_the_end(training, out, told)
    if not training.trained_epochs and os.path.exists(os.path.join(out, run_report.REPORT)):
        return  # the run was finished before: keep its report, which has the training time
    for path in run_report.write(training, out, time.perf_counter() - start):
        told.say(f"report: {path}")


def _beginning(args: argparse.Namespace, training: Run, reasons: Mapping[str, str]) -> Iterator[str]:
    """Yield lines on changed images, the settings that were chosen and why, the initial weights, and the last epoch."""
    settings = training.settings
    for change in training.changes:
        yield f"since the run began: {change}"
    if settings.dtype == "bfloat16" and args.device == "cpu" and not training.finished:
        yield words.gain_of_bfloat16(minorm_ext.levels()[-1])
    if part := fold_of(settings.fold):
        yield (f"validation is on fold {part[0]} of {part[1]}; for all folds: for i in $(seq {part[1]}); do minorm "
               f"train ... --fold $i/{part[1]}; done")  # fmt: skip
    if reasons:
        said = (f"--{name.replace('_', '-')} {getattr(settings, name)} ({why})" for name, why in reasons.items())
        yield f"chosen to suit the images: {', '.join(said)}"
    if training.initial is not None and not args.resume:
        yield from training.initial.sentences()
    if args.pretrained is not None:
        yield args.pretrained.sentence(training.preprocessing, args.said)
    if not training.finished:
        yield from transfer_options.sentences(training)
    if args.resume and args.epochs is not None:
        rate, done = training.optimizer.param_groups[0]["lr"], training.epoch
        yield (f"continuing after epoch {done}, up to epoch {settings.epochs}; the learning rate is now {rate:.3g}, "
               f"the value after {done} epochs of the {settings.schedule} schedule for {settings.epochs} "
               "epochs")  # fmt: skip


def _tell_the_end(training: Run, out: str, told: LineDisplay) -> None:
    """Print the skipped pictures, the reason for an early end, the best score and the files written."""
    for line in words.skipped(training.sets):
        told.say(line)
    if training.epoch < training.settings.epochs:
        patience = training.settings.early_stopping
        told.say(f"ended early, because {patience} epoch{'' if patience == 1 else 's'} brought no better score")
    best = training.history[training.best_epoch - 1]
    told.say(f"best: epoch {best['epoch']}, {_score('validation', best['val_loss'], best['val_accuracy'])}")
    if best["val_accuracy"] is not None:
        guess = largest_class(training.sets[1], training.preprocessing.classes)
        for line in words.compared(best["val_accuracy"], guess):
            told.say(line)
    told.say(f"done: {', '.join(os.path.join(out, name) for name in (CHECKPOINT, BEST, LOG))}")


def _workers(group: Group) -> str:
    """Return the number of threads and ranks: `2 threads`, or `4 ranks on 2 processes, 1 thread each`."""
    threads = mn.get_num_threads()
    said = f"{threads} thread{'s' if threads != 1 else ''}"
    if group.size == 1:
        return said
    return f"{group.size} ranks on {group.processes} process{'es' if group.processes != 1 else ''}, {said} each"


def _how_to_go_on(out: str, args: argparse.Namespace, group: Group) -> str:
    """Return advice that fits the files on disk, because Ctrl-C may come before a file was written."""
    path = os.path.join(out, CHECKPOINT)
    if not os.path.exists(path):
        best = os.path.join(out, BEST)
        return (
            (f"{best} exists, but there is no {path} to continue from")
            if os.path.exists(best)
            else "nothing was written yet"
        )
    train = f"mpiexec -n {group.processes} minorm train --distributed" if group.processes > 1 else "minorm train"
    return (
        f"{path} holds the state after epoch {load_training(path)['epoch']}; continue with: {train} --resume --out "
        f"{out}"
        + (f" --path {args.path}" if args.path else "")
        + (f" --model {args.model}" if args.model and is_file(args.model) else " --trust" if args.trust else "")
        + (f" --num-workers {args.num_workers}" if args.num_workers is not None else "")
        + (f" --device {args.device}" if args.device != "cpu" else "")
        + (" --no-graph" if args.no_graph else "")
        + (f" --logger {args.logger}" if args.logger else "")
    )


def _settings(args: argparse.Namespace) -> Settings:
    """Return the settings that the options give. With --resume, return the settings of the run that goes on.

    Raises ValueError if an option contradicts the run's setting; only --epochs may differ, and the run then goes on to
    that epoch. For a new run, `choose_settings` may choose settings that were not given.
    """
    given = train_options.given(args)
    if not args.resume:
        return Settings(**{"epochs": MOST_EPOCHS, **given} if given.get("data") in OWN else given)
    if not args.out:
        raise ValueError("--resume needs --out DIR, the folder of the run to go on with")
    file = os.path.join(args.out, CHECKPOINT)
    found = saved.read_run(file)
    settings = saved.settings(found, file)
    if args.model is not None and is_file(args.model) and is_file(settings.model):
        del given["model"]  # the file may have moved; its SHA-256 decides
    transfer_options.check_same_scaling(args, found)
    for name in ("epochs", "mean", "std"):  # `Run.resume` goes on to that epoch; the scaling is the same by now
        given.pop(name, None)
    for name, value in given.items():
        if value != getattr(settings, name):
            raise ValueError(
                f"{name} is {value!r}; expected {getattr(settings, name)!r}, as in the run in {args.out}, because "
                "--resume keeps the settings; for another value start a new run with another --out"
            )
    if args.path is None:
        args.path = images.place(found.get("images"), file)
    facts = found["model_facts"]
    args.code = trust.code(facts, file, trust.of(args, args.model))
    resuming.check_same_code(file, facts, args.code)
    return settings


def _open(args: argparse.Namespace, out: str, settings: Settings, group: Group, load: Callable[[], Any]) -> Run:
    """Return a new run or, with --resume, the run that goes on."""
    workers = args.num_workers if args.num_workers is not None else 2 if settings.data == "folder" else 0
    if args.resume:
        return Run.resume(
            out,
            args.path,
            group.device,
            group,
            load(),
            workers,
            model=args.model,
            code=args.code,  # read by `_settings`, and allowed by the user
            other_images=args.other_images,
            epochs=args.epochs,
            graph=not args.no_graph,
        )
    if group.rank == 0 and os.path.exists(os.path.join(out, CHECKPOINT)):
        raise ValueError(f"{out} already holds a run; continue this run with --resume, or choose another --out")
    if group.rank == 0 and os.path.exists(os.path.join(out, BEST)):
        raise ValueError(f"{out} holds the {BEST} of another run; move it away or choose another --out")
    group.barrier()  # rank 0 has looked before any rank writes
    return Run(
        settings, out, args.path, group.device, group, load(), workers, code=args.code, init=args.init,
        graph=not args.no_graph,
    )  # fmt: skip


def _short(model: str) -> str:
    """Return a short name: `lenet`; `mine` for path/mine.py:build; `net` for path/net.onnx."""
    path = split(model)[0] if is_file(model) else model
    return os.path.splitext(os.path.basename(path))[0] if is_file(model) or is_graph(model) else model


def _line(row: Row, epochs: int) -> str:
    width = len(str(epochs))
    train, val = (_score(part, row[f"{part}_loss"], row[f"{part}_accuracy"]) for part in ("train", "val"))
    return f"epoch {row['epoch']:{width}}/{epochs}  {train}  {val}  {row['images_per_second']:,.0f} images/s"


def _score(part: str, loss: float, accuracy: float | None) -> str:
    return f"{part} loss {loss:.4f}" + ("" if accuracy is None else f" accuracy {accuracy:7.2%}")
