"""`minorm doctor` finds faults in a trained model's normalizations, and says why they matter and what mends them."""

from __future__ import annotations

import argparse
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from minorm import nn, quantization
from minorm.cli import sources
from minorm.cli.options import device_option, external_root, output_files
from minorm.cli.sources import Source
from minorm.cli.terminal import extras, output
from minorm.cli.terminal.one_line_errors import UsageError
from minorm.diagnosis.pytorch import arrays
from minorm.serialization import atomic
from minorm.tensor.tensor import Tensor
from minorm.training.data.preparing import preprocessing
from minorm.training.model import initial
from minorm.training.model.own_code import ImagesNeeded, built, is_file
from minorm.training.settings import LARGEST

if TYPE_CHECKING:
    from minorm.data import DataLoader
    from minorm.diagnosis import Diagnosis
    from minorm.quantization import QATModel

MAX_STATISTICS_IMAGES = 16_384  # the most images on which precise_bn measures statistics
FOLDING_BATCHES = 8  # number of batches on which the gap of folding is measured
FIXES = ("precise_bn", "freeze")


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "doctor",
        help="find what is wrong with the normalizations of a trained model",
        description="Run a model on up to 512 training images, once in evaluation mode and once with the statistics "
        "of the batch, and tell what is wrong with its normalizations. Each layer has a row; each finding has its "
        "numbers, a reason and advice. MODEL may also be a function of yours, FILE.py:FUNCTION, which returns a "
        "module of PyTorch or of minorm, or (model, batches). Without --data an ONNX file is run on noise, and "
        "findings that need images are left out. The exit code is 1 if a finding is more severe than a note.",
        epilog="docs/doctor.md has a section for each finding.",
    )
    parser.add_argument(
        "model", metavar="MODEL", help=f"{sources.MODEL_HELP}; or FILE.py:FUNCTION, a function that is called"
    )
    parser.add_argument(
        "--weights",
        metavar="FILE",
        help="weights for the model of FILE.py:FUNCTION: a .pt, .safetensors or .npz file (no code in the file is run)",
    )
    sources.add_data(parser)
    parser.add_argument(
        "--image-size",
        type=int,
        metavar="N",
        help="for FILE.py:FUNCTION: the size to which the images of a folder are scaled",
    )
    parser.add_argument(
        "--batch-size",
        type=int,
        metavar="N",
        help="the batch size of training (default: that of the run; if it is unknown, there are no findings about "
        "small batches)",
    )
    parser.add_argument("--json", action="store_true", help="everything as JSON, for programs")
    parser.add_argument(
        "--plot", metavar="FILE", help="draw the distributions and the gap of each layer (.png, .svg, .pdf)"
    )
    parser.add_argument(
        "--fix",
        choices=FIXES,
        help="write a corrected model: precise_bn measures the running statistics anew, freeze keeps them unchanged "
        "in later training",
    )
    parser.add_argument("-o", "--out", metavar="FILE", help="the file for the corrected model, in the format of MODEL")
    external_root.add(parser)
    device_option.add_to_a_reader(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the findings; return 1 if a finding is more severe than a note."""
    from minorm.diagnosis import diagnose

    _check(args)
    patient = _built(args) if is_file(args.model) else _open_model_and_images(args)
    if args.plot:
        extras.need("matplotlib")
    found = diagnose(patient.model, patient.batches, **patient.batch_size)
    qat = None if patient.source is None else patient.source.qat
    gaps = {} if qat is None else _folding(qat, patient.batches, args.device)
    if args.json:
        output.show_json({"model": patient.name, **found.plain(), **({"folding_gap": gaps} if gaps else {})})
    else:
        output.say(patient.name)
        output.show(found)
        for layer, gap in gaps.items():
            output.say(
                f"folded: with running statistics, {layer} differs by {gap:.1%} from its result with batch statistics"
            )
    if args.plot:
        _draw(found, args.model, args.plot)
    if args.fix:
        assert patient.source is not None
        said = _correct_and_write(patient.source, patient.batches, args.fix, args.out)
        if not args.json:
            output.say("")
            output.say(said)
    return 0 if found.is_healthy else 1


@dataclass(frozen=True)
class _Patient:
    """A model to diagnose.

    `batches` is None if the model runs on noise. `batch_size` holds the keyword argument of this name for `diagnose`,
    or is empty. `source` is the opened file.
    """

    name: str
    model: Any
    batches: Any
    batch_size: dict[str, int | None]
    source: Source | None = None


def _check(args: argparse.Namespace) -> None:
    """Raise UsageError if options contradict each other."""
    if (args.fix is None) != (args.out is None):
        raise UsageError(
            "--fix and --out FILE need each other: --fix says what to correct, --out where the corrected model is "
            "written"
        )
    output_files.check_picture("--plot", args.plot)
    for option in ("image_size", "batch_size"):
        value = getattr(args, option)
        if value is not None and not 1 <= value <= LARGEST:
            raise UsageError(f"--{option.replace('_', '-')} {value}: expected 1 to {LARGEST:,}")
    if is_file(args.model):
        if args.fix:
            raise UsageError(
                f"--fix {args.fix} corrects the model of a file, not of FILE.py:FUNCTION; the report says what to "
                "call in Python instead"
            )
    elif args.weights is not None or args.image_size is not None:
        option = "--image-size" if args.weights is None else "--weights"
        raise UsageError(f"{option} needs FILE.py:FUNCTION, and MODEL is {args.model}")


def _open_model_and_images(args: argparse.Namespace) -> _Patient:
    """Open the file of args.model, and return the model with the images on which it was trained."""
    source = sources.opened(args)
    output_files.check("doctor", source.path, args.plot, args.out)
    batch_size = {"batch_size": args.batch_size or (source.settings.batch_size if source.settings else None)}
    if source.kind == "onnx" and args.data is None and args.path is None:
        if args.fix == "precise_bn":
            raise UsageError("--fix precise_bn needs images, and the file does not say what it was trained on; "
                             "expected --data")  # fmt: skip
        return _Patient(source.path, source.model, None, batch_size, source)
    if source.qat is not None and args.fix:
        raise UsageError(f"--fix: {source.path} was trained for int8 (train --qat); expected a float model")
    model = source.model if source.qat is None else source.qat.model
    return _Patient(source.path, model, sources.training_loader(source, args), batch_size, source)


def _built(args: argparse.Namespace) -> _Patient:
    """Return the model that FILE.py:FUNCTION builds, with images.

    The images are those of --data. Without --data, they are the batches that the function returns.
    """
    if args.plot:
        atomic.destination(args.plot, "doctor")
    loader, form = None, None
    if args.data is not None or args.path is not None:
        chosen = sources.choose(Source(args.model, "code", None), args)
        train, scored = chosen.sets()
        scaled = preprocessing(chosen.settings, train)
        loader, form = chosen.loaders(train, scored)[0], (scaled.channels, scaled.size, len(scaled.classes))
    try:
        made = built(args.model, form)
    except ImagesNeeded as error:
        raise UsageError(str(error)) from None
    if args.weights is not None:
        _fill(made.model, args.weights)
    device_option.check(args)
    made.model.to(args.device)  # in place, both for a module of PyTorch and for one of minorm
    batches = made.batches if loader is None else loader
    if batches is None:
        raise UsageError(f"{args.model} returns a model without batches; expected (model, batches), or --data")
    own = loader is None and args.batch_size is None  # the function's batches have their own size
    return _Patient(args.model, made.model, batches, {} if own else {"batch_size": args.batch_size})


def _fill(model: Any, path: str) -> None:
    """Load weights from the file at `path` into the model. Only arrays are read from the file."""
    found = initial.arrays_by_name(path, "--weights")
    if isinstance(model, nn.Module):
        model.load_state_dict({name: Tensor(array) for name, array in found.items()})
    else:
        arrays.fill(model, found, f"--weights {path}")


def _folding(model: QATModel, loader: DataLoader, device: str) -> dict[str, float]:
    """Compare each folded BatchNorm's output with the output that the batch's statistics would give.

    Return a dict from the layers' names to the differences.
    """
    batches = [x.to(device) for x, _ in itertools.islice(loader, FOLDING_BATCHES)]
    return quantization.folding_gap(model, batches)


def _correct_and_write(source: Source, loader: DataLoader, fix: str, out: str) -> str:
    """Correct and write the model; return a sentence that says what was done."""
    if fix == "freeze":
        nn.utils.freeze_norm(source.model)
        source.write(out)
        return f"{out}: all layers with running statistics are frozen"
    size = loader.batch_size or 1
    batches = min(len(loader), -(-MAX_STATISTICS_IMAGES // size))
    nn.utils.precise_bn(source.model, loader, num_iters=batches)
    source.write(out)
    return f"{out}: the running statistics were measured anew on {batches * size:,} images"


def _draw(found: Diagnosis, title: str, path: str) -> None:
    from minorm.cli.views import doctor_picture

    output_files.write_picture("doctor", doctor_picture.picture(found, title), path)
