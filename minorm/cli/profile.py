"""`minorm profile` shows where a model's steps spend time and memory: a table, a sentence and a flame graph."""

from __future__ import annotations

import argparse
import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

import minorm as mn
import minorm.functional as F
from minorm import optim, profiler
from minorm.cli import sources
from minorm.cli.options import device_option, external_root, output_files
from minorm.cli.sources import Source
from minorm.cli.terminal import output
from minorm.cli.terminal.one_line_errors import UsageError
from minorm.data import DataLoader
from minorm.devices import dtypes
from minorm.nn import Module
from minorm.profiler.averages import SORTS, duration, size
from minorm.tensor.tensor import Tensor

BATCH, STEPS, WARM_UP, ROWS = 32, 10, 2, 20
FREE_AXIS_LENGTH = 32  # of an axis that a file leaves free
SPEEDSCOPE = ".speedscope.json"


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "profile",
        help="show how much time and memory each layer or operation of a model takes",
        description="Run training steps of a model, and show the time and memory of each layer, forward and backward, "
        "and one sentence about the largest. Without --data the images are random numbers, so that only the model is "
        "measured. With --data the time to read the images is measured as well.",
        epilog="Example: minorm profile run -o trace.json, which https://ui.perfetto.dev shows as a flame graph",
    )
    parser.add_argument("model", metavar="MODEL", help=sources.MODEL_HELP)
    parser.add_argument(
        "--inference",
        action="store_true",
        help="run forward passes in evaluation mode, without gradients, instead of training steps",
    )
    parser.add_argument(
        "--batch-size", type=int, metavar="N", help=f"the batch size (default: that of the run, otherwise {BATCH})"
    )
    parser.add_argument("--steps", type=int, default=STEPS, metavar="N", help="the number of steps that are measured "
                        f"(default {STEPS}), after {WARM_UP} steps that are not")  # fmt: skip
    device_option.add_to_a_reader(parser)
    parser.add_argument(
        "--by",
        choices=("layer", "operation"),
        default="layer",
        help="what each row of the table stands for (default layer)",
    )
    parser.add_argument("--sort-by", choices=SORTS, metavar="COLUMN", help="the column to sort by, one of "
                        f"{', '.join(SORTS)} (default: self time)")  # fmt: skip
    parser.add_argument(
        "--rows",
        type=int,
        default=ROWS,
        metavar="N",
        help=f"the largest number of rows (default {ROWS}; -1 for all rows)",
    )
    parser.add_argument("--json", action="store_true", help="everything as JSON, for programs")
    parser.add_argument("-o", "--out", metavar="FILE", help="write a flame graph: trace.json for "
                        f"https://ui.perfetto.dev, or a name that ends in {SPEEDSCOPE} for "
                        "https://www.speedscope.app")  # fmt: skip
    sources.add_data(parser)
    external_root.add(parser)
    sources.add_dtype(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure some steps.

    Print a table of the time and memory of each layer or operation, and a sentence that sums it up.
    """
    _check(args)
    source = sources.opened(args)
    output_files.check("profile", source.path, args.out)
    batches, what = _batches(source, args)
    step = _step(source, args)
    for x, y in itertools.islice(batches(), WARM_UP):
        step(x, y)
    images = 0
    with profiler.profile(profile_memory=True, record_shapes=True) as prof:
        for x, y in itertools.islice(batches(), args.steps):
            step(x, y)
            prof.step()
            images += x.shape[0]
    if args.out:
        write = prof.export_speedscope if args.out.endswith(SPEEDSCOPE) else prof.export_chrome_trace
        write(args.out)
    if args.json:
        output.show_json(_plain(prof, source.path))
    else:
        _tell(prof, args, f"{source.path}: {args.steps} {'forward passes' if args.inference else 'training steps'} "
              f"with {what} on {args.device}", images)  # fmt: skip
    return 0


def _check(args: argparse.Namespace) -> None:
    for name in ("batch_size", "steps"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name.replace('_', '-')} {value}: expected at least 1")
    if args.out and not args.out.endswith(".json"):
        raise UsageError(f"--out {args.out}: expected a name that ends in .json, or in {SPEEDSCOPE}")


def _tell(prof: profiler.profile, args: argparse.Namespace, what: str, images: int) -> None:
    rows = prof.key_averages(group_by_layer=args.by == "layer")
    step = rows.total / prof.steps
    output.say(f"{what}: {duration(step)} per step, {1e6 * images / rows.total:,.0f} images/s, peak memory "
               f"{size(prof.peak_memory)}")  # fmt: skip
    output.say("")
    for line in rows.table(sort_by=args.sort_by, row_limit=args.rows).splitlines():
        output.say(line)
    output.say("")
    output.say(prof.summary())
    if args.out:
        output.say(f"flame graph: {args.out}")


def _plain(prof: profiler.profile, path: str) -> dict[str, Any]:
    layers, operations = prof.key_averages(group_by_layer=True), prof.key_averages()
    return {
        "model": path,
        "summary": prof.summary(),
        "steps": prof.steps,
        "microseconds": layers.total,
        "peak_bytes": prof.peak_memory,
        "layers": [asdict(row) for row in layers],
        "operations": [asdict(row) for row in operations],
    }


# The measured step and its batches


def _step(source: Source, args: argparse.Namespace) -> Callable[[Tensor, Tensor], None]:
    """Return a function that runs a training step or a forward pass.

    Raises ValueError if there are no parameters to train.
    """
    model: Module = source.model if source.qat is None or args.inference else source.qat
    model = model.train(not args.inference)
    if args.inference:

        def forward(x: Tensor, _: Tensor) -> None:
            with mn.no_grad():
                model(x.to(args.device))

        return forward
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise ValueError(f"{source.path} has no parameters to train; expected --inference")
    optimizer = optim.SGD(parameters, lr=1e-6, momentum=0.9)  # so small that the weights hardly change

    def train(x: Tensor, y: Tensor) -> None:
        loss = _loss(model(x.to(args.device)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return train


def _loss(found: Any, labels: Tensor) -> Tensor:
    """Return the cross entropy if the outputs have the shape of logits, else the mean of the squared outputs."""
    outputs = found if isinstance(found, Tensor) else next(iter(found.values() if isinstance(found, dict) else found))
    if outputs.ndim == 2 and outputs.shape[0] == labels.shape[0]:
        return F.cross_entropy(outputs, (labels % outputs.shape[1]).to(outputs.device))
    return (outputs * outputs).mean()


def _batches(source: Source, args: argparse.Namespace) -> tuple[Callable[[], Iterator[tuple[Tensor, Tensor]]], str]:
    """Return a function that starts an endless iterator over batches, and a description of the batches."""
    count = args.batch_size or (source.settings.batch_size if source.settings else BATCH)
    if args.data is not None or args.path is not None:
        loader = sources.training_loader(source, args)
        if args.batch_size is not None:
            loader = DataLoader(loader.dataset, count, shuffle=True, seed=0, transform=loader.transform)
        return functools.partial(_again, loader), f"batches of {loader.batch_size} images that are read"
    x = Tensor(_noise(source, count))
    y = Tensor(np.random.default_rng(1).integers(0, 1 << 30, count))
    return lambda: itertools.repeat((x, y)), f"batches of {count} random inputs of {' x '.join(map(str, x.shape[1:]))}"


def _again(loader: Any) -> Iterator[tuple[Tensor, Tensor]]:
    while True:
        yield from loader


def _noise(source: Source, count: int) -> Any:
    """Return random numbers in the shape of the model's input.

    Raise ValueError if the model has several inputs, or if the input is not an array of floats.
    """
    if source.kind == "onnx":
        inputs = source.model.inputs
        if len(inputs) != 1 or not dtypes.is_float(inputs[0].dtype) or not inputs[0].shape:
            raise ValueError(f"{source.path} takes {', '.join(map(str, inputs))}; expected one input of floats")
        first, *rest = inputs[0].shape
        count = first if isinstance(first, int) else count
        shape = [length if isinstance(length, int) else FREE_AXIS_LENGTH for length in rest]
    else:
        shape = [source.facts["channels"], source.facts["size"], source.facts["size"]]
    noise = np.random.default_rng(0).standard_normal((count, *shape))
    return noise.astype(source.image_type)
