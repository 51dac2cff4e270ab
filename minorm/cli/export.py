"""`minorm export` writes a checkpoint of `minorm train` or `minorm demo` as an ONNX model."""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import minorm as mn
from minorm.cli import sources
from minorm.cli.terminal import extras, output
from minorm.serialization import atomic
from minorm.support.safe_names import message
from minorm.training.data import file_preprocessing


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "export",
        help="write a checkpoint as an ONNX model",
        description="Write a checkpoint of `minorm train` or `minorm demo` as an ONNX model in its inference form, "
        "or with --training in the form that training goes on from, with a free batch size. It is written only if "
        "onnxruntime computes from it what minorm does, at three batch sizes.",
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a .safetensors file, or the folder of a run")
    parser.add_argument("-o", "--out", default="model.onnx", metavar="FILE", help="default model.onnx")
    sources.add_code(parser)
    parser.add_argument(
        "--opset",
        type=int,
        metavar="N",
        help="7 to the newest; default: the lowest from 17 on at which no normalization is split into several nodes",
    )
    parser.add_argument(
        "--training", action="store_true", help="keep what layers do in training; new running statistics are outputs"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Export the checkpoint, and print the report of the verification."""
    extras.need("onnx")
    from minorm.onnx.exporting import default_opset, translating, verifying
    from minorm.onnx.graph import encoding
    from minorm.onnx.loading import metadata

    atomic.destination(args.out, "export")  # raises its error before the work, not after
    source = sources.open_checkpoint(args.checkpoint, sources.allowed(args))
    model, facts = source.model, source.facts
    if source.settings is not None and source.settings.dtype == "bfloat16":
        model = model.to(mn.float32)  # every runtime has float32
    mn.manual_seed(0)
    x = mn.randn(2, facts["channels"], facts["size"], facts["size"])
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        translated = translating.translate(model, x, opset_version=args.opset, training=args.training)
        proto = translated.proto
        report = verifying.against(translated).check(proto)
    if source.preprocessing is not None:
        described = file_preprocessing.description(source.preprocessing)
        metadata.set_entries(proto, {**metadata.entries_of(proto), **described})
    contents = encoding.encode(proto)
    with atomic.replacing(args.out, "export") as file:
        file.write(contents)
    output.say(f"weights of {source.path}")
    output.say(f"{args.out}: {facts['name']}, opset {proto.opset_import[0].version}, {len(proto.graph.node)} nodes")
    if args.opset is None:
        output.say(f"opset {translated.opset}: {default_opset.reason(translated.why)}")
    for note in notes:
        output.show(message(f"note: {str(note.message).removeprefix('export: ')}"))
    output.show(report)
    return 0
