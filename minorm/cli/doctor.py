"""`minorm doctor`: what is wrong with the normalizations of a trained model, why it matters, and how to mend it."""

from __future__ import annotations

import argparse
import itertools
import os
from typing import TYPE_CHECKING, Any

from minorm import nn, quantization
from minorm.cli import extras, output, sources
from minorm.cli.one_line_errors import UsageError
from minorm.cli.options import external_root
from minorm.serialization import atomic

if TYPE_CHECKING:
    from minorm.cli.sources import Source
    from minorm.data import DataLoader
    from minorm.diagnosis import Diagnosis
    from minorm.quantization import QATModel

MEASURED = 16_384  # images at most that precise_bn takes its statistics from
FOLDED = 8  # batches that the gap of folding is measured on
FIXES = ("precise_bn", "freeze")
FORMS = (".png", ".svg", ".pdf")


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "doctor",
        help="find what is wrong with the normalizations of a trained model",
        description="Run a model in evaluation and with the batch's statistics on up to 512 training images, and tell "
        "what is wrong with its normalizations: a row a layer, and for each finding the numbers, why it matters and "
        "what to do. The exit code is 1 if something stands above a note.",
        epilog="docs/doctor.md has a section for each finding.",
    )
    parser.add_argument("model", metavar="MODEL", help=sources.MODEL_HELP)
    sources.add_data(parser)
    parser.add_argument("--json", action="store_true", help="everything as JSON, for programs")
    parser.add_argument(
        "--plot", metavar="FILE", help="a picture: distributions and gap of each layer (.png, .svg, .pdf)"
    )
    parser.add_argument(
        "--fix",
        choices=FIXES,
        help="write a corrected model: precise_bn measures the running statistics anew, freeze keeps them from now on",
    )
    parser.add_argument("-o", "--out", metavar="FILE", help="where the corrected model goes, of the kind MODEL is")
    external_root.add(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print what is found; returns 1 if something stands above a note."""
    from minorm.diagnosis import diagnose

    if (args.fix is None) != (args.out is None):
        raise UsageError("--fix and --out FILE go together: what to do, and where the corrected model goes")
    if args.plot and not args.plot.lower().endswith(FORMS):
        raise UsageError(f"--plot {args.plot}: expected a name that ends in .png, .svg or .pdf")
    source = sources.opened(args)
    for path in filter(None, (args.plot, args.out)):  # an error now, and not after the work
        if os.path.exists(path) and os.path.samefile(path, source.path):
            raise UsageError(f"{path} is the model itself; expected another file")
        atomic.destination(path, "doctor")
    if args.plot:
        extras.need("matplotlib")
    loader = sources.training_loader(source, args)
    if source.qat is not None and args.fix:
        raise UsageError(f"--fix: {source.path} trains for int8; expected a float model, from which --init begins anew")
    model = source.model if source.qat is None else source.qat.model
    found = diagnose(model, loader, batch_size=source.settings.batch_size if source.settings else None)
    gaps = {} if source.qat is None else _folding(source.qat, loader)
    if args.json:
        output.show_json({"model": source.path, **found.plain(), **({"folding_gap": gaps} if gaps else {})})
    else:
        output.say(source.path)
        output.show(found)
        for layer, gap in gaps.items():
            output.say(f"folded: {layer} with its running statistics is {gap:.1%} from the batch's")
    if args.plot:
        _draw(found, args.model, args.plot)
    if args.fix:
        said = _fixed(source, loader, args.fix, args.out)
        if not args.json:
            output.say("")
            output.say(said)
    return 0 if found.is_healthy else 1


def _folding(model: QATModel, loader: DataLoader) -> dict[str, float]:
    """How far each folded BatchNorm is from what training computes before its freeze."""
    batches = [x for x, _ in itertools.islice(loader, FOLDED)]
    return quantization.folding_gap(model, batches)


def _fixed(source: Source, loader: DataLoader, fix: str, out: str) -> str:
    """Write the corrected model; what was done, in a sentence."""
    if fix == "freeze":
        nn.utils.freeze_norm(source.model)
        source.write(out)
        return f"{out}: every layer with running statistics is frozen"
    size = loader.batch_size or 1
    batches = min(len(loader), -(-MEASURED // size))
    nn.utils.precise_bn(source.model, loader, num_iters=batches)
    source.write(out)
    return f"{out}: running statistics measured anew, on {batches * size:,} images"


def _draw(found: Diagnosis, title: str, path: str) -> None:
    from minorm.cli.views import doctor_picture

    figure = doctor_picture.picture(found, title)
    with atomic.replacing(path, "doctor") as file:
        figure.savefig(file, format=path[-3:].lower(), dpi=130)
