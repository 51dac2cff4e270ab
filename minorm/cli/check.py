"""`minorm check`: what is in an ONNX model, does minorm run and train it, and does onnxruntime agree?

The checker and onnxruntime run in a process of their own with a time and a memory limit: a broken or hostile file
can crash them, and then the answer is "crashed", not a crash.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import time
from typing import TYPE_CHECKING, Any

import minorm as mn
from minorm.cli import external_root, extras, output, shape_option, words
from minorm.cli.views.check_report import Report, Verdict
from minorm.serialization import atomic, limits

if TYPE_CHECKING:
    from minorm.onnx.checking.inspection import Inspection
    from minorm.onnx.checking.layers import LayerRow
    from minorm.onnx.checking.profiling import Seen

SECONDS = 120.0


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "check",
        help="say what is in an ONNX model, what is odd about it, and whether it runs",
        description="Draw an ONNX model as layers, with the shapes, parameters and multiplications at the size given "
        "with --shape. List every node with its version, whether minorm runs and trains it; every weight that would "
        "train; every normalization with its mode, momentum and eps, and what is odd about it. Then load it, run the "
        "ONNX checker, and compare minorm with onnxruntime on random inputs. The exit code is 0 if nothing failed; "
        "what is merely odd does not count.",
    )
    parser.add_argument("model", metavar="MODEL.onnx")
    shape_option.add(parser)
    parser.add_argument("--brief", action="store_true", help="count nodes and weights, and show layers from afar")
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
        "--max-bytes", type=int, default=limits.ONNX, metavar="N", help="what the model may take (default 2 GiB)"
    )
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, metavar="N", help=f"onnxruntime may take (default {SECONDS:g})"
    )
    external_root.add(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print what is found and the verdicts; returns 1 if one is a failure."""
    extras.need("onnx")
    if not args.json:
        extras.need("rich")
    from minorm.cli.views import check_page
    from minorm.onnx.checking.inspection import inspect
    from minorm.onnx.exporting import examples

    if args.html is not None:
        page = atomic.destination(args.html, "check")  # an error now, and not after the work
        if os.path.realpath(args.model) == page:
            raise ValueError(f"--html {args.html} is the model itself; expected another file")
    given = shape_option.parse(args.shape)
    found = inspect(args.model, args.max_bytes, args.external_root)
    if found.inputs:
        examples.with_lengths(found.inputs, given)  # an error now, where they do not fit
    verdicts, size, seen = judge(found, args.model, given, args.seconds)
    report = Report(found, verdicts, size, found.layers(seen))
    if args.html is not None:
        with atomic.replacing(args.html, "check") as file:
            file.write(check_page.page(report).encode())
    if args.json:
        output.show_json(_plain(report))
    else:
        from minorm.cli.screen import Screen
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
        "folded": found.folded,
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


def judge(
    found: Inspection, path: str, given: dict[str, tuple[int, ...]], seconds: float
) -> tuple[list[Verdict], dict[str, tuple[int, ...]], Seen]:
    """minorm, the checker, onnxruntime, and whether the two agree; the shapes of the inputs that minorm ran on.

    And what it saw its nodes make of them.
    """
    from minorm.onnx.checking import sandbox, verification
    from minorm.onnx.exporting import examples

    args, results, verdict, seen = _run(found, given)
    module = found.module
    size = {} if module is None or args is None else dict(zip(module.input_names, (x.shape for x in args), strict=True))
    if args is None and found.inputs:  # onnxruntime may run what minorm does not
        args = examples.exact(found.inputs, given)
    names = [entry.name for entry in found.inputs]
    arrays = None if args is None else {name: value.array for name, value in zip(names, args, strict=True)}
    how = verification.how_to_check(found.proto)
    answer = sandbox.ask(path, arrays, checker=how, seconds=seconds)
    verdicts = [verdict, _checker(how, answer)]
    if not answer["checker"].passed and how:  # it stopped there; onnxruntime may think otherwise
        answer = sandbox.ask(path, arrays, checker="", seconds=seconds)
    verdicts.append(_runtime(answer, arrays is not None))
    if answer.outputs is not None and results is not None:
        verdicts.append(_comparison(found, answer.outputs, results))
    return verdicts, size, seen


def _run(found: Inspection, given: dict[str, tuple[int, ...]]) -> tuple[Any, Any, Verdict, Seen]:
    from minorm.onnx.checking import profiling
    from minorm.onnx.exporting import examples
    from minorm.onnx.exporting.runs import untouched

    model = found.module
    if model is None:
        refused = f"does not run {len(found.unsupported)} of {len(found.rows)} nodes"
        return None, None, Verdict("minorm", "FAILED", refused if found.unsupported else found.error), {}
    try:
        args = examples.example(model, given)
        with mn.no_grad(), untouched(model, None), profiling.watched() as seen:
            start = time.perf_counter()
            results = model(*args)
            took = time.perf_counter() - start
    except ValueError as error:
        return None, None, Verdict("minorm", "FAILED", str(error)), {}
    results = results if isinstance(results, tuple) else (results,)
    given_, made = (
        words.shapes({name: x.shape for name, x in zip(names, tensors, strict=True) if isinstance(x, mn.Tensor)})
        for names, tensors in ((model.input_names, args), (model.output_names, results))
    )
    text = f"runs all {len(found.rows)} nodes: {given_} -> {made or 'lists'}, in {_time(took)}"
    compared = all(isinstance(y, mn.Tensor) for y in results)
    return args, results if compared else None, Verdict("minorm", "ok", text), seen


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _checker(how: str, answer: Any) -> Verdict:
    from minorm.onnx.checking import sandbox

    name = sandbox.version("onnx")
    if not how:
        return Verdict("checker", "-", f"not asked: {name} refuses GroupNormalization 18, which is valid")
    if not answer["checker"].passed:
        return Verdict("checker", "FAILED", answer["checker"].text)
    return Verdict("checker", "ok", f"valid ({name})" if how == "full" else f"valid, shapes not inferred ({name})")


def _runtime(answer: Any, fed: bool) -> Verdict:
    from minorm.onnx.checking import sandbox

    if answer.failure is not None:
        return Verdict("onnxruntime", "FAILED", answer.failure[1].text)
    if not answer["load"].passed:
        return Verdict("onnxruntime", "-", answer["load"].text)
    name = sandbox.version("onnxruntime")
    if not fed:
        return Verdict("onnxruntime", "-", f"{name} loads it; not run: give free axes a length with --shape")
    return Verdict("onnxruntime", "ok", f"{name} runs it in {_time(answer['run'].seconds)}")


def _comparison(found: Inspection, outputs: Any, results: Any) -> Verdict:
    from minorm.onnx.checking import verification
    from minorm.onnx.graph.errors import VerifyError

    module = found.module
    if module is not None and any(
        type(layer).__name__ == "Dropout" and layer.training and not layer.frozen for layer in module.modules()
    ):
        return Verdict("agreement", "-", "not compared: dropout is random")
    try:
        worst, relative = verification.compare(found.proto, outputs, results)
    except VerifyError as error:
        return Verdict("agreement", "FAILED", str(error).removeprefix("verify: "))
    names = verification.wrong_in_onnxruntime(found.proto) & {entry.name for entry in found.proto.graph.output}
    but = f"; not compared: {', '.join(sorted(names))}, which onnxruntime gives as 1/std" if names else ""
    return Verdict("agreement", "ok", f"largest difference {worst:.2g}, relative to max(1, |y|) {relative:.2g}{but}")
