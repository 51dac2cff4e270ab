"""`minorm predict` prints the class of each picture and its probability."""

from __future__ import annotations

import argparse
import codecs
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from minorm.cli import sources
from minorm.cli.options import device_option, external_root, output_files, tta_option
from minorm.cli.sources import Source
from minorm.cli.terminal import extras, output
from minorm.cli.terminal.one_line_errors import UsageError
from minorm.cli.views.predictions import Csv, Json, Table
from minorm.cli.views.predictions_page import PredictionsPage
from minorm.data import BrokenImage, Normalize, read_image
from minorm.data.listing import FORMATS, LeftOut, pictures_below
from minorm.serialization import atomic
from minorm.support.safe_names import quoted
from minorm.tensor.tensor import Tensor
from minorm.training import predict
from minorm.training.data.preparing import Preprocessing
from minorm.training.files.outcome import softmax

BATCH = 32
PRINT = "-"  # the value of --csv that means: print


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "predict",
        help="the class of each picture",
        description="Print the most probable class of each picture. Pictures are read as for training: turned "
        "upright, with the shorter side scaled, and cut to the centre square. A folder stands for all pictures in it "
        "and in its subfolders. If a file is no picture, its name is printed, the other files are predicted, and the "
        "exit code is 1.",
        epilog="Example: minorm predict run images/ --csv predictions.csv --html predictions.html",
    )
    parser.add_argument("model", metavar="MODEL", help=sources.MODEL_HELP)
    parser.add_argument("images", metavar="IMAGES", nargs="+", help=f"{FORMATS} files, and folders with such files")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help='[{"file", "label", "probability"}], with --top-k also "top"')
    form.add_argument("--csv", nargs="?", const=PRINT, metavar="FILE.csv", help="write the rows of --json as CSV with "
                      "a header, for spreadsheets; without a file name print them")  # fmt: skip
    parser.add_argument(
        "--html",
        metavar="FILE.html",
        help="write a page with thumbnails, in which the least certain predictions come first",
    )
    parser.add_argument(
        "--top-k", type=int, default=1, metavar="K", help="show the K most probable classes (default 1)"
    )
    sources.add_limit(parser)
    sources.add_code(parser)
    external_root.add(parser)
    sources.add_dtype(parser)
    device_option.add_to_a_reader(parser)
    tta_option.add(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print or write a row for each picture; return 1 if a picture could not be read."""
    extras.need("PIL")
    _check(args)
    source = sources.opened(args)
    found = source.preprocessing
    if found is None:
        raise ValueError(
            f"{source.path} does not say how images are scaled. This cannot be guessed, because the model's input is "
            "not N x C x size x size with C = 1 or 3; call the model in Python"
        )
    output_files.check("predict", source.path, None if args.csv == PRINT else args.csv, args.html)
    files = _files(args.images)
    output.note(f"minorm predict: weights of {source.path}")
    broken: list[str] = []
    model = tta_option.wrapped(source, args)
    page = PredictionsPage(source.path) if args.html else None
    with _view(args, files, found.classes) as view:
        for row, pixels in _rows(model, source, found, files, broken, args):
            if view is not None:
                view.add(row)
            if page is not None:
                page.add(row, pixels)
    if page is not None:
        with atomic.replacing(args.html, "predict") as file:
            file.write(page.html(broken).encode())
    for path in filter(None, (args.html, args.csv if args.csv != PRINT else None)):
        output.note(f"minorm predict: {path} has {len(files) - len(broken):,} pictures")
    for reason in broken:
        output.note(f"minorm predict: {reason}")
    return 1 if broken else 0


def _check(args: argparse.Namespace) -> None:
    if args.top_k < 1:
        raise UsageError(f"--top-k {args.top_k}: expected at least 1")
    if args.csv not in (None, PRINT) and not args.csv.lower().endswith(".csv"):
        raise UsageError(
            f"--csv {args.csv}: expected a name that ends in .csv; to print the CSV, make --csv the last argument"
        )
    if args.html is not None and not args.html.lower().endswith((".html", ".htm")):
        raise UsageError(f"--html {args.html}: expected a name that ends in .html")


def _files(given: Sequence[str]) -> list[str]:
    """Return the given files and the pictures in given folders; raise ValueError for a folder without pictures."""
    found: list[str] = []
    for path in given:
        if not os.path.isdir(path):
            found.append(path)
            continue
        left_out = LeftOut()
        below = pictures_below(path, left_out)
        if not below:
            beside = f"; there are {left_out}" if left_out.counts else ""
            raise ValueError(f"there are no pictures below {quoted(path)}; expected {FORMATS} files{beside}")
        if left_out.counts:
            output.note(f"minorm predict: left out of {path}: {left_out}")
        found += [os.path.join(path, name) for name in below]
    return found


@contextmanager
def _view(args: argparse.Namespace, files: Sequence[str], labels: Sequence[str]) -> Iterator[Any]:
    """Make the view that prints or writes the rows: Table, Json or Csv.

    End the view when the block ends. The value is None if only --html is given.
    """
    view: Any = None
    with ExitStack() as stack:
        if args.json:
            view = Json()
        elif args.csv is not None:
            file = None if args.csv == PRINT else stack.enter_context(atomic.replacing(args.csv, "predict"))
            view = Csv(sys.stdout if file is None else codecs.getwriter("utf-8")(file))
        elif not args.html:
            view = Table(files, labels)
        yield view
        if view is not None:
            view.end()


def _rows(
    model: Any,
    source: Source,
    found: Preprocessing,
    paths: Sequence[str],
    broken: list[str],
    args: argparse.Namespace,
) -> Iterator[tuple[dict[str, Any], Any]]:
    """For each picture, yield the row to print and the picture's pixels.

    Only one batch of pictures is in memory at a time.
    """
    scale, generator = Normalize(found.mean, found.std), np.random.default_rng(0)
    together = 1 if source.takes_one else BATCH
    for start in range(0, len(paths), together):
        names, images = [], []
        for path in paths[start : start + together]:
            try:
                images.append(read_image(path, found.size, found.channels, args.max_bytes))
            except (BrokenImage, OSError) as error:
                broken.append(str(error).removeprefix("read_image: "))
                continue
            names.append(path)
        if not images:
            continue
        pixels = np.stack(images).astype(np.float32) / np.float32(255)
        logits: Any = predict(model, Tensor(scale(pixels, generator).astype(source.image_type)))
        logits = logits[0] if isinstance(logits, tuple) else logits
        if logits.ndim != 2 or (found.classes and logits.shape[1] != len(found.classes)):
            raise ValueError(f"for {len(images)} image{'' if len(images) == 1 else 's'} the model's output has shape "
                             f"{tuple(logits.shape)}; expected "
                             "one row for each image, with one number for each "
                             f"{f'of {len(found.classes)} classes' if found.classes else 'class'}")  # fmt: skip
        numbers = logits.cpu().numpy()
        given = source.gives_probabilities and args.tta is None
        probabilities = numbers.astype(np.float64) if given else softmax(numbers)
        for name, shares, image in zip(names, probabilities, images, strict=True):
            if not np.isfinite(shares).all():
                broken.append(f"{quoted(name)}: the model gives NaN or infinity; expected a number for each class")
                continue
            yield _row(name, shares, found.classes, args.top_k), image


def _row(name: str, shares: Any, classes: Sequence[str], k: int) -> dict[str, Any]:
    """Return a row with the most probable class, and with the k most probable classes if k > 1."""
    top = [
        {"label": classes[i] if classes else str(i), "probability": round(float(shares[i]), 6)}
        for i in np.argsort(-shares, kind="stable")[:k]
    ]
    return {"file": name, **top[0]} | ({"top": top} if k > 1 else {})
