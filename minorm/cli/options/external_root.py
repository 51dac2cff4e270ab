"""`--external-root DIR` allows weights of an ONNX model to be symbolic links to files in DIR."""

from __future__ import annotations

import argparse


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the option."""
    parser.add_argument(
        "--external-root",
        metavar="DIR",
        help="a folder that you trust: the external weight files of an ONNX model may be links into this folder",
    )
