"""`minorm evaluate` prints accuracy, loss and scores by class, for validation images or for a whole folder."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from minorm import nn
from minorm.cli import sources
from minorm.cli.options import device_option, external_root, tta_option
from minorm.cli.sources import Chosen, Source
from minorm.cli.terminal import output, words
from minorm.cli.terminal.one_line_errors import UsageError
from minorm.data import DataLoader
from minorm.data.splits import ALL, TEST, TRAIN, VALIDATION, load_part
from minorm.tensor.tensor import Tensor
from minorm.training import ClassificationReport, evaluate
from minorm.training.data.images import PATH, changes, known, known_before
from minorm.training.data.majority_guess import largest_class
from minorm.training.files.outcome import softmax
from minorm.training.metrics.classification_report import scores_of

SPLITS = {VALIDATION: "validation accuracy", TEST: "test accuracy", TRAIN: "training accuracy", ALL: "accuracy"}


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "evaluate",
        help="accuracy and loss of a model on images that were set aside, or on a folder",
        description="Measure accuracy, mean cross entropy (without label smoothing and class weights), top-k "
        "accuracy, calibration, and precision, recall, F1 and AUROC of each class. Without --path the images are the "
        "validation images of the run, which also chose its best epoch. With --path DIR they are all pictures in that "
        "folder.",
    )
    parser.add_argument("model", metavar="MODEL", help=sources.MODEL_HELP)
    sources.add_data(parser)
    parser.add_argument("--split", choices=list(SPLITS), help="which images to score: the validation images, those of "
                        "test/, the training images, or all (default: all with --path DIR, else validation)"
                        )  # fmt: skip
    parser.add_argument("--top-k", type=int, default=5, metavar="K", help="count an image as right if its class is "
                        "among the K most probable (default 5)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help='{"images", "accuracy", "loss", "split", "path", '
                        '"largest_class", "classes", "macro", "weighted", "roc_auc", "top_k", "calibration", ...}'
                        )  # fmt: skip
    external_root.add(parser)
    sources.add_dtype(parser)
    device_option.add_to_a_reader(parser)
    tta_option.add(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the scores."""
    if args.top_k < 1:
        raise UsageError(f"--top-k {args.top_k}: expected at least 1")
    source = sources.opened(args)
    chosen = sources.choose(source, args)
    split = args.split or _usual_split(source, chosen, args)
    output.note(f"minorm evaluate: {_where(split, chosen.path)}")
    scored, remarks = _images_and_remarks(chosen, split, args.path)
    for line in [*words.left_out([scored]), *remarks]:
        output.note(f"minorm evaluate: {line}")
    loader = chosen.loaders(scored, scored)[1]
    if source.takes_one:
        loader = DataLoader(scored, 1, transform=loader.transform)
    seen = _Seen(source.gives_probabilities and args.tta is None)
    score = evaluate(tta_option.wrapped(source, args), loader, seen)
    for line in words.skipped([scored]):
        output.note(f"minorm evaluate: {line}")
    if not score.images:
        raise ValueError("no image could be read; expected at least one")
    names = source.preprocessing.classes if source.preprocessing else ()
    guess, report = largest_class(loader.dataset, names), seen.report(names, args.top_k)
    if args.json:
        scores = {"images": score.images, "accuracy": score.accuracy, "loss": score.loss}
        said = {**scores, "split": split, "path": chosen.path, "largest_class": asdict(guess), **report.as_dict()}
        output.show_json(said, indent=None)
        return 0
    output.note(f"minorm evaluate: weights of {source.path}")
    output.say(f"{score.images:,} images: accuracy {report.accuracy:.2%}, loss {score.loss:.4f}")
    output.say(guess.beside(report.accuracy, SPLITS[split]))
    for line in [*report.table(), *report.sentences()]:
        output.say(line)
    return 0


class _Seen(nn.CrossEntropyLoss):
    """A cross entropy that also keeps the model's outputs, so that all scores need only one pass over the images."""

    def __init__(self, of_probabilities: bool) -> None:
        super().__init__()
        self.of_probabilities = of_probabilities
        self.batches: list[tuple[Any, Any]] = []

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the mean cross entropy of a batch.

        If `input` has probabilities, their logarithms are used as logits.
        """
        if self.of_probabilities:
            input = input.float().clamp(min=float(np.finfo(np.float32).tiny)).log()
        loss = super().forward(input, target)
        self.batches.append((input.cpu().float().numpy(), target.cpu().numpy()))
        return loss

    def report(self, names: Sequence[str], k: int) -> ClassificationReport:
        """Return accuracy, loss and the scores of each class, computed from all batches so far."""
        logits, labels = (np.concatenate(parts) for parts in zip(*self.batches, strict=True))
        return scores_of(labels, softmax(logits), names, k)


def _usual_split(source: Source, chosen: Chosen, args: argparse.Namespace) -> str:
    if chosen.settings.data == "folder":
        return VALIDATION if args.path is None else ALL
    return TEST if source.settings is None or source.settings.data != chosen.settings.data else VALIDATION


def _where(split: str, path: str | None) -> str:
    what = "all images" if split == ALL else f"the {'training' if split == TRAIN else split} images"
    return what if path is None else f"{what} of {path}"


def _images_and_remarks(chosen: Chosen, split: str, given: str | None) -> tuple[Any, list[str]]:
    """Return the images of the split, and sentences on what has changed since the run used them.

    `given` is the value of --path.
    """
    name, found = chosen.settings.data, chosen.found
    if name == "folder" and split in (TEST, ALL) and chosen.path is not None:
        form = (chosen.settings.image_size, 3) if found is None else (found.size, found.channels)
        classes = found.classes if found is not None and found.classes else None
        scored = load_part(chosen.path, split, *form, True, classes, chosen.max_bytes)
        return scored, _remark_on_training_images(chosen, given) if split == ALL else []
    if split == ALL:
        raise UsageError(f"--split all needs a folder of pictures, and this is {name}; expected validation or train")
    if split == TEST and chosen.known is not None:
        raise UsageError(
            f"--split test: {name} has no images that the run has not used: its second part chose the best epoch; "
            "expected validation or train"
        )
    sets = chosen.sets()
    said: list[str] = []
    if given is None and chosen.known is not None:
        now = known(sets)
        said = changes(known_before({"images": chosen.known}, now), now)
    return sets[0 if split == TRAIN else 1], [f"since the run began: {line}" for line in said]


def _remark_on_training_images(chosen: Chosen, given: str | None) -> list[str]:
    """Return a list with a remark if the images were used to train the model. Otherwise return an empty list."""
    there = (chosen.known or {}).get(PATH)
    if given is None or there is None or os.path.realpath(given) != os.path.realpath(there):
        return []
    return ["the run was trained on most of these; for those that were set aside leave out --path"]
