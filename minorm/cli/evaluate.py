"""`minorm evaluate`: accuracy and loss on the test images of a data set."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from minorm import nn
from minorm.cli import sources, words
from minorm.training import evaluate


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
    parser.add_argument("--json", action="store_true", help='{"images", "accuracy", "loss"}')
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the scores."""
    source = sources.open_model(args.model, args.instead, max_bytes=args.max_bytes)
    loader = sources.both_loaders(source, args)[1]
    score = evaluate(source.model, loader, nn.CrossEntropyLoss())
    for line in words.skipped([loader.dataset]):
        print(f"minorm evaluate: {line}", file=sys.stderr)
    if not score.images:
        raise ValueError("no image could be read; expected at least one")
    if args.json:
        print(json.dumps({"images": score.images, "accuracy": score.accuracy, "loss": score.loss}))
        return 0
    print(f"minorm evaluate: weights of {source.path}", file=sys.stderr)
    accuracy = "" if score.accuracy is None else f"accuracy {score.accuracy:.2%}, "
    print(f"{score.images:,} images: {accuracy}loss {score.loss:.4f}")
    return 0
