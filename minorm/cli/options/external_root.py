"""`--external-root DIR` allows weights of an ONNX model to be symbolic links to files in DIR."""

from __future__ import annotations

import argparse


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the option."""
    parser.add_argument(
        "--external-root",
        metavar="DIR",
        help="a folder that you trust: an ONNX model's weights in other files may be links to files in it",
    )
