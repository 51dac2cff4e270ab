"""`minorm evaluate`: accuracy and loss on the test images of a data set."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from minorm import nn
from minorm.cli import output, sources, words
from minorm.training import evaluate
from minorm.training.guessing import largest_class


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "evaluate",
        help="accuracy and loss of a model on test images",
        description="Accuracy and mean cross entropy, without smoothing and weights, on the test images: those of a "
        "folder's val/, or of the split by the run's seed.",
    )
    parser.add_argument("model", metavar="MODEL", help=sources.MODEL_HELP)
    sources.add_data(parser)
    parser.add_argument("--json", action="store_true", help='{"images", "accuracy", "loss", "largest_class"}')
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the scores."""
    source = sources.open_model(args.model, sources.allowed(args), max_bytes=args.max_bytes)
    loader = sources.both_loaders(source, args)[1]
    score = evaluate(source.model, loader, nn.CrossEntropyLoss())
    for line in words.skipped([loader.dataset]):
        output.note(f"minorm evaluate: {line}")
    if not score.images:
        raise ValueError("no image could be read; expected at least one")
    guess = largest_class(loader.dataset, source.preprocessing.classes if source.preprocessing else ())
    if args.json:
        scores = {"images": score.images, "accuracy": score.accuracy, "loss": score.loss}
        output.show_json({**scores, "largest_class": asdict(guess)}, indent=None)
        return 0
    output.note(f"minorm evaluate: weights of {source.path}")
    accuracy = "" if score.accuracy is None else f"accuracy {score.accuracy:.2%}, "
    output.say(f"{score.images:,} images: {accuracy}loss {score.loss:.4f}")
    if score.accuracy is not None:
        output.say(guess.beside(score.accuracy))
    return 0
