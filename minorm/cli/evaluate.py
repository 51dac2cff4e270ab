"""`minorm evaluate`: accuracy and loss on images that were set aside, or on all of a folder."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict
from typing import Any

from minorm import nn
from minorm.cli import sources
from minorm.cli.options import external_root, tta_option
from minorm.cli.sources import Chosen, Source
from minorm.cli.terminal import output, words
from minorm.cli.terminal.one_line_errors import UsageError
from minorm.data.splits import ALL, TEST, TRAIN, VALIDATION, load_part
from minorm.training import evaluate
from minorm.training.data.guessing import largest_class
from minorm.training.data.images import PATH, changes, known, known_before

SPLITS = {VALIDATION: "validation accuracy", TEST: "test accuracy", TRAIN: "training accuracy", ALL: "accuracy"}


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "evaluate",
        help="accuracy and loss of a model on images that were set aside, or on a folder",
        description="Accuracy and mean cross entropy, without smoothing and weights. Without --path on the validation "
        "images of the run, by which it chose its best epoch; with --path DIR on every picture in that folder.",
    )
    parser.add_argument("model", metavar="MODEL", help=sources.MODEL_HELP)
    sources.add_data(parser)
    parser.add_argument("--split", choices=list(SPLITS), help="which images: those set aside to validate, "
                        "those of test/, those trained on, or all (default all with --path DIR, else validation)"
                        )  # fmt: skip
    parser.add_argument("--json", action="store_true", help='{"images", "accuracy", "loss", "split", "path", '
                        '"largest_class"}')  # fmt: skip
    external_root.add(parser)
    sources.add_dtype(parser)
    tta_option.add(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the scores."""
    source = sources.opened(args)
    chosen = sources.choose(source, args)
    split = args.split or _usual_split(source, chosen, args)
    output.note(f"minorm evaluate: {_where(split, chosen.path)}")
    scored, remarks = _scored(chosen, split, args.path)
    for line in [*words.left_out([scored]), *remarks]:
        output.note(f"minorm evaluate: {line}")
    loader = chosen.loaders(scored, scored)[1]
    score = evaluate(tta_option.wrapped(source.model, args), loader, nn.CrossEntropyLoss())
    for line in words.skipped([scored]):
        output.note(f"minorm evaluate: {line}")
    if not score.images:
        raise ValueError("no image could be read; expected at least one")
    guess = largest_class(loader.dataset, source.preprocessing.classes if source.preprocessing else ())
    if args.json:
        scores = {"images": score.images, "accuracy": score.accuracy, "loss": score.loss}
        output.show_json({**scores, "split": split, "path": chosen.path, "largest_class": asdict(guess)}, indent=None)
        return 0
    output.note(f"minorm evaluate: weights of {source.path}")
    accuracy = "" if score.accuracy is None else f"accuracy {score.accuracy:.2%}, "
    output.say(f"{score.images:,} images: {accuracy}loss {score.loss:.4f}")
    if score.accuracy is not None:
        output.say(guess.beside(score.accuracy, SPLITS[split]))
    return 0


def _usual_split(source: Source, chosen: Chosen, args: argparse.Namespace) -> str:
    if chosen.settings.data == "folder":
        return VALIDATION if args.path is None else ALL
    return TEST if source.settings is None or source.settings.data != chosen.settings.data else VALIDATION


def _where(split: str, path: str | None) -> str:
    what = "all images" if split == ALL else f"the {'training' if split == TRAIN else split} images"
    return what if path is None else f"{what} of {path}"


def _scored(chosen: Chosen, split: str, given: str | None) -> tuple[Any, list[str]]:
    """The images of the split, and what there is to say of them beside the run's own; `given`: the --path."""
    name, found = chosen.settings.data, chosen.found
    if name == "folder" and split in (TEST, ALL) and chosen.path is not None:
        form = (chosen.settings.image_size, 3) if found is None else (found.size, found.channels)
        classes = found.classes if found is not None and found.classes else None
        scored = load_part(chosen.path, split, *form, True, classes, chosen.max_bytes)
        return scored, _seen(chosen, given) if split == ALL else []
    if split == ALL:
        raise UsageError(f"--split all is for folders of pictures, and this is {name}; expected validation or train")
    if split == TEST and chosen.known is not None:
        raise UsageError(f"--split test: {name} has no images that the run has not seen, as it chose its best epoch by "
                         "the second part; expected validation or train")  # fmt: skip
    sets = chosen.sets()
    said: list[str] = []
    if given is None and chosen.known is not None:
        now = known(sets)
        said = changes(known_before({"images": chosen.known}, now), now)
    return sets[0 if split == TRAIN else 1], [f"since the run began: {line}" for line in said]


def _seen(chosen: Chosen, given: str | None) -> list[str]:
    """A word on images that the run was trained on."""
    there = (chosen.known or {}).get(PATH)
    if given is None or there is None or os.path.realpath(given) != os.path.realpath(there):
        return []
    return ["the run was trained on most of these; for those that were set aside leave out --path"]
