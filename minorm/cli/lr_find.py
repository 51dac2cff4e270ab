"""`minorm lr-find` runs the range test of learning rates, with the images and options of `minorm train`."""

from __future__ import annotations

import argparse
import csv
import functools
import io
import os
from typing import Any

import minorm as mn
from minorm import optim
from minorm.cli import config, sources, trust
from minorm.cli.options import device_option, output_files, train_options, transfer_options
from minorm.cli.terminal import extras, output
from minorm.cli.terminal.curve import curve
from minorm.serialization import atomic
from minorm.training import Run, choose_settings
from minorm.training.data.preparing import mixed
from minorm.training.settings import USUAL_DATA

NUMBERS = ".csv"


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "lr-find",
        help="find a learning rate for `minorm train`",
        description="Train for some steps while the learning rate rises, and say where the loss falls fastest. The "
        "options for images, model and optimizer are those of `minorm train`. Options for a whole run, such as "
        "--epochs, have no effect. The trained weights are not kept.",
    )
    train_options.add_training(parser)
    trust.add(parser)
    parser.add_argument("--start-lr", type=float, default=1e-6, metavar="X", help="first rate (default %(default)g)")
    parser.add_argument("--end-lr", type=float, default=10.0, metavar="X", help="last rate (default %(default)g)")
    parser.add_argument("--steps", type=int, default=100, metavar="N", help="the number of steps (default %(default)d)")
    parser.add_argument("-o", "--out", metavar="FILE", help="a .png, .svg or .pdf file for the curve, with the numbers "
                        "in a .csv file beside it; or a .csv file alone")  # fmt: skip
    parser.add_argument("--json", action="store_true", help='{"suggestion", "steepest", "minimum", "rates", "losses", '
                        '"smoothed"}')  # fmt: skip
    parser.set_defaults(run=functools.partial(run, parser))


def run(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    """Run the range test and print the curve and the suggestion."""
    said = config.read(args.config, parser) if args.config else {}
    for name, value in {"device": device_option.DEVICE, **said}.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    device_option.check(args)
    _check_out(args.out)
    sources.check_path(args.data, args.path)
    if args.path is not None and args.data is None:
        args.data = sources.usual_data(args.path)
    if args.threads is not None:
        mn.set_num_threads(args.threads)
    found = _tested(args)
    if args.out:
        _write(found, args.out)
    if args.json:
        lists = {"rates": found.rates, "losses": found.losses, "smoothed": found.smoothed}
        output.show_json(
            {"suggestion": found.suggestion, "steepest": found.steepest, "minimum": found.minimum, **lists}, None
        )
        return 0
    _show(found)
    return 0


def _tested(args: argparse.Namespace) -> optim.RangeTest:
    args.code = None
    if (pretrained := transfer_options.resolve(args)) is not None:
        transfer_options.fill(args, pretrained, args.data or USUAL_DATA)
    settings, _, sets = choose_settings(args.path, args.max_bytes, **train_options.given(args))
    workers = args.num_workers if args.num_workers is not None else 2 if settings.data == "folder" else 0
    training = Run(
        settings, None, args.path, args.device, None, sets, workers, code=args.code, init=args.init, graph=False
    )
    output.note(
        f"minorm lr-find: {settings.data} with {settings.optimizer}, {args.steps} batches of {settings.batch_size}"
    )
    batches = mixed(settings, training.train_loader, len(training.preprocessing.classes))
    return optim.lr_finder(
        training.model, batches, training.loss_function, training.optimizer,
        start_lr=args.start_lr, end_lr=args.end_lr, num_iter=args.steps, clip_grad=settings.clip_grad,
    )  # fmt: skip


def _show(found: optim.RangeTest) -> None:
    ends = (f"{found.rates[0]:.1g}", f"{found.rates[-1]:.2g}")
    for line in curve(found.smoothed, ends, "learning rate", top=1.25 * found.smoothed[0]):
        output.say(line)
    if found.suggestion is None:
        output.say("the loss falls at none of these rates; try other values of --start-lr, --end-lr and --steps")
        return
    output.say(f"the loss falls fastest at {found.steepest:.2g}, and is smallest at {10 * found.minimum:.2g}")
    output.say(f"suggestion: --lr {found.suggestion:.2g}, a tenth of the rate at the smallest loss")


def _check_out(path: str | None) -> None:
    """Raise UsageError unless `path` ends in .csv or in the extension of a picture; None is allowed."""
    if path is None or path.lower().endswith(NUMBERS):
        return
    output_files.check_picture("-o", path)
    extras.need("matplotlib")


def _write(found: optim.RangeTest, path: str) -> None:
    """Write the picture, and the numbers as a .csv file beside it; if the path ends in .csv, write only the numbers."""
    if not path.lower().endswith(NUMBERS):
        output_files.write_picture("lr-find", found.plot(), path)
        output.note(f"minorm lr-find: wrote {path}")
    numbers = os.path.splitext(path)[0] + NUMBERS
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["learning_rate", "loss", "smoothed_loss"])
    writer.writerows(zip(found.rates, found.losses, found.smoothed, strict=True))
    with atomic.replacing(numbers, "lr-find") as file:
        file.write(text.getvalue().encode())
    output.note(f"minorm lr-find: wrote {numbers}")
