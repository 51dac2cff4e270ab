"""`minorm check` shows what an ONNX model contains, whether minorm runs and trains it, and whether onnxruntime agrees.

The checker and onnxruntime run in a separate process with limits of time and memory. If a broken or hostile file
crashes them, the command reports "crashed" and goes on.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from typing import TYPE_CHECKING, Any

from minorm.cli.check_verdicts import judge
from minorm.cli.options import device_option, external_root, input_option, shape_option
from minorm.cli.terminal import extras, output
from minorm.cli.views.check_report import Report
from minorm.serialization import atomic, limits

if TYPE_CHECKING:
    from minorm.onnx.checking.layers import LayerRow

SECONDS = 120.0


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "check",
        help="show an ONNX model, report oddities, and try whether it runs",
        description="Draw an ONNX model as layers, with the shapes, parameters and multiplications at the size given "
        "with --shape. List every node with its version, and say whether minorm runs and trains the node. List the "
        "weights that would train, and the normalizations with mode, momentum, eps and oddities. Then load the model, "
        "run the ONNX checker, and compare minorm with onnxruntime on random inputs. The exit code is 0 if nothing "
        "failed; an oddity is no failure.",
    )
    parser.add_argument("model", metavar="MODEL.onnx")
    shape_option.add(parser)
    input_option.add(parser)
    parser.add_argument("--brief", action="store_true", help="count nodes and weights, and list only whole layers")
    parser.add_argument(
        "--trainable",
        action="store_true",
        help="list every tensor of the file, whether it is a Parameter, a buffer or a constant, and why",
    )
    parser.add_argument("--json", action="store_true", help="everything as JSON, for programs")
    parser.add_argument(
        "-o", "--out", "--html", dest="html", metavar="FILE", help="write a page with the layers and the graph drawn"
    )
    parser.add_argument(
        "--max-bytes",
        type=int,
        default=limits.ONNX,
        metavar="N",
        help="the most memory that the model may take (default 2 GiB)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        metavar="N",
        help=f"the seconds that onnxruntime may take (default {SECONDS:g})",
    )
    external_root.add(parser)
    device_option.add(parser, note=", on which minorm runs the model; onnxruntime runs it on the CPU")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the findings on the model, and the verdicts on the model; return 1 if a verdict is FAILED."""
    extras.need("onnx")
    if not args.json:
        extras.need("rich")
    device_option.check(args)
    from minorm.cli.views import check_page
    from minorm.onnx.checking.inspection import inspect
    from minorm.onnx.checking.required import Required
    from minorm.onnx.exporting import examples

    if args.html is not None:
        page = atomic.destination(args.html, "check")  # raises its error before the work, not after
        if os.path.realpath(args.model) == page:
            raise ValueError(f"--html {args.html} is the model itself; expected another file")
    given, values = shape_option.parse(args.shape), input_option.parse(args.input)
    found = inspect(args.model, args.max_bytes, args.external_root)
    guess = examples.Guess(given, values, Required(found.proto.graph).lengths)
    if found.inputs:
        examples.settled(found.inputs, guess)  # raises an error here if they do not fit
    judged = judge(found, args.model, guess, args.seconds, args.device)
    verdicts = judged.verdicts
    report = Report(found, verdicts, judged.size, found.layers(judged.seen))
    if args.html is not None:
        with atomic.replacing(args.html, "check") as file:
            file.write(check_page.page(report).encode())
    if args.json:
        output.show_json(_plain(report))
    else:
        from minorm.cli.terminal.screen import Screen
        from minorm.cli.views import check_view

        check_view.show(Screen(), report, args.brief, args.trainable)
    return int(any(verdict.state == "FAILED" for verdict in verdicts))


def _plain(report: Report) -> dict[str, Any]:
    found, verdicts = report.found, report.verdicts
    return {
        **found.facts,
        "size": report.size,
        "multiplications": report.multiplications,
        "layers": [_layer(layer) for layer in report.layers],
        "folded": [*found.folded, *found.written_out],
        "quantized": found.quantized,
        "twice": found.twice,
        "merged": found.merged,
        "cuts": list(found.cuts),
        "nodes": [dataclasses.asdict(row) for row in found.rows],
        "weights": [dataclasses.asdict(weight) for weight in found.weights],
        "tensors": [dataclasses.asdict(tensor) for tensor in found.tensors],
        "normalizations": [dataclasses.asdict(norm) for norm in found.norms],
        "verdicts": [dataclasses.asdict(verdict) for verdict in verdicts],
    }


def _layer(layer: LayerRow) -> dict[str, Any]:
    kept = ("path", "name", "operators", "shape", "parameters", "frozen", "statistics", "fixed", "multiplications")
    return {name: getattr(layer, name) for name in kept} | {"trains": layer.trains}
