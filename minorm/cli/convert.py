"""`minorm convert` writes an ONNX model at another opset."""

from __future__ import annotations

import argparse
import os
import warnings
from typing import Any

from minorm.cli.options import external_root, shape_option
from minorm.cli.terminal import extras, output
from minorm.serialization import limits
from minorm.support.safe_names import message


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "convert",
        help="write an ONNX model at another opset",
        description="Write an ONNX model at another opset: 7 to the newest, up or down. Nodes that need no change "
        "stay as they are, and so do names, free axes and the mode of every layer. Before the file is written, "
        "onnxruntime runs the old and the new model at three lengths of every free axis, and the results are "
        "compared.",
        epilog="Example: minorm convert model.onnx --opset 13 -o model-13.onnx",
    )
    parser.add_argument("model", metavar="MODEL.onnx")
    parser.add_argument("--opset", type=int, required=True, metavar="N", help="the opset to write")
    parser.add_argument(
        "-o", "--out", metavar="FILE", help="the file to write (default: MODEL-opsetN.onnx beside the model)"
    )
    shape_option.add(
        parser,
        does=": the size at which the old and the new model are compared (needed only if "
        "guessing fails; the axes stay free)",
    )
    shape_option.add(parser, "--fix-shape", "; in the new file this length is fixed")
    parser.add_argument(
        "--external-data", action="store_true", help="put the weights into FILE.data, even if they are small"
    )
    parser.add_argument("--no-verify", action="store_true", help="do not compare with onnxruntime")
    parser.add_argument(
        "--max-bytes",
        type=int,
        default=limits.ONNX,
        metavar="N",
        help="the most memory that the model may take (default 2 GiB)",
    )
    external_root.add(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Convert the model to another opset, and print notes on normalizations that the conversion changed."""
    extras.need("onnx")
    import minorm.onnx
    from minorm.onnx.graph import encoding

    out = args.out or f"{args.model.removesuffix('.onnx')}-opset{args.opset}.onnx"
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        new = minorm.onnx.convert(
            args.model,
            out,
            opset_version=args.opset,
            shapes=shape_option.parse(args.fix_shape, "--fix-shape"),
            sizes=shape_option.parse(args.shape),
            external_data=args.external_data or None,
            verify=not args.no_verify,
            max_bytes=args.max_bytes,
            external_root=args.external_root,
        )
    old = encoding.read(args.model, "convert")
    opset = next((entry.version for entry in old.opset_import if entry.domain in ("", "ai.onnx")), 1)
    output.say(f"{args.model}, opset {opset}, {len(old.graph.node)} nodes")
    output.say(f"{out}, opset {args.opset}, {len(new.graph.node)} nodes, {os.path.getsize(out):,} bytes")
    for note in notes:
        output.show(message(f"note: {str(note.message).removeprefix('convert: ')}"))
    if not args.no_verify and not any("not compared" in str(note.message) for note in notes):
        output.say("onnxruntime gives the same results for the new model as for the old one")
    return 0
