"""`minorm predict`: the class of each picture, and how probable the model finds it."""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from minorm.cli import sources
from minorm.cli.options import external_root, tta_option
from minorm.cli.sources import Source
from minorm.cli.terminal import extras, output
from minorm.data import BrokenImage, Normalize, read_image
from minorm.data.listing import FORMATS
from minorm.support.masking import for_spreadsheet, printable
from minorm.tensor.tensor import Tensor
from minorm.training import predict
from minorm.training.data.preparing import Preprocessing
from minorm.training.files.outcome import softmax

BATCH = 32


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "predict",
        help="the class of each picture",
        description="The most probable class of each picture, read as for training: turned upright, the shorter side "
        "scaled, the centre cut. A file that is no picture is named, the others are predicted, and the exit code is 1.",
    )
    parser.add_argument("model", metavar="MODEL", help=sources.MODEL_HELP)
    parser.add_argument("images", metavar="IMAGES", nargs="+", help=f"{FORMATS} files")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help='[{"file", "label", "probability"}]')
    form.add_argument("--csv", action="store_true", help="the same with a header, for spreadsheets")
    sources.add_limit(parser)
    sources.add_code(parser)
    external_root.add(parser)
    sources.add_dtype(parser)
    tta_option.add(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print a line for each picture; 1 where one could not be read."""
    extras.need("PIL")
    source = sources.opened(args)
    found = source.preprocessing
    if found is None:
        raise ValueError(f"{source.path} does not say how images are scaled, nor is its input N x C x size x size with "
                         "1 or 3 channels; call the model in Python")  # fmt: skip
    output.note(f"minorm predict: weights of {source.path}")
    broken: list[str] = []
    model = tta_option.wrapped(source.model, args)
    rows = list(_rows(model, source, found, args.images, broken, args.max_bytes))
    if args.json:
        output.show_json(rows)
    elif args.csv:
        _csv(rows)
    else:
        _table(rows)
    for reason in broken:
        output.note(f"minorm predict: {reason.removeprefix('read_image: ')}")
    return 1 if broken else 0


def _rows(
    model: Any, source: Source, found: Preprocessing, paths: Sequence[str], broken: list[str], max_bytes: int | None
) -> Iterator[dict[str, Any]]:
    scale, generator = Normalize(found.mean, found.std), np.random.default_rng(0)
    for start in range(0, len(paths), BATCH):
        names, images = [], []
        for path in paths[start : start + BATCH]:
            try:
                images.append(read_image(path, found.size, found.channels, max_bytes))
            except (BrokenImage, OSError) as error:
                broken.append(str(error))
                continue
            names.append(path)
        if not images:
            continue
        pixels = np.stack(images).astype(np.float32) / np.float32(255)
        logits: Any = predict(model, Tensor(scale(pixels, generator).astype(source.image_type)))
        logits = logits[0] if isinstance(logits, tuple) else logits
        if logits.ndim != 2 or (found.classes and logits.shape[1] != len(found.classes)):
            raise ValueError(f"the model makes {tuple(logits.shape)} of {len(images)} images; expected one number a "
                             f"class{f' for {len(found.classes)} classes' if found.classes else ''}")  # fmt: skip
        for name, share in zip(names, softmax(logits.cpu().numpy()), strict=True):
            best = int(share.argmax())
            label = found.classes[best] if found.classes else str(best)
            yield {"file": name, "label": label, "probability": round(float(share[best]), 6)}


def _csv(rows: list[dict[str, Any]]) -> None:
    writer = csv.DictWriter(sys.stdout, ("file", "label", "probability"), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({**row, "file": for_spreadsheet(row["file"]), "label": for_spreadsheet(row["label"])})


def _table(rows: list[dict[str, Any]]) -> None:
    named = [(printable(row["file"]), printable(row["label"]), row["probability"]) for row in rows]
    widths = [max([len(line[place]) for line in named], default=0) for place in (0, 1)]
    for file, label, probability in named:
        output.say(f"{file:{widths[0]}}  {label:{widths[1]}}  {100 * probability:6.2f} %")
