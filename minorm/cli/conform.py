"""`minorm conform` tells which runtimes compute normalizations as ONNX says.

It tests all normalizations, or those in a file. It runs minorm, onnxruntime, onnx's reference evaluator, PyTorch, and
up to twelve other runtimes if they are installed. Each runtime runs in a separate process. If the runtime crashes or
hangs, its verdict says so, and the command goes on.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from minorm.cli.options import external_root, input_option, shape_option
from minorm.cli.terminal import extras, output
from minorm.serialization import limits
from minorm.support.safe_names import printable

if TYPE_CHECKING:
    from minorm.conformance.report import Report
    from minorm.conformance.verdict import Cell

RUNTIMES = (
    "minorm", "onnxruntime", "reference", "torch", "openvino", "opencv", "tract", "mnn", "ncnn", "tvm", "tinygrad",
    "onnx2torch", "flax", "keras", "mlx", "paddle",
)  # fmt: skip
OF_A_MODEL = ("shape", "input", "max_bytes", "external_root")


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "conform",
        help="compare runtimes on every normalization of ONNX with a formula in float64",
        description="Run every version of every ONNX normalization on the cases that matter: offsets to 1e6, 16-bit "
        "floats, empty batches, training. The runtimes are minorm, onnxruntime, the reference evaluator of onnx, "
        f"PyTorch for the operators that it has, and every installed one of {', '.join(RUNTIMES[4:])}. Each result is "
        "judged by a formula in float64. A cell is right (with the number of right digits), wrong (with the error and "
        "the known defect) or unsupported. With a file, the normalizations of the file are judged, node by node. The "
        "exit code is 1 only if minorm is wrong or a runtime does not run at all.",
    )
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL.onnx",
        help="judge the normalizations of this file instead, each on the inputs that it gets when the model runs",
    )
    shape_option.add(parser)
    input_option.add(parser)
    parser.add_argument(
        "--max-bytes", type=int, metavar="N", help="the most memory that the model may take (default 2 GiB)"
    )
    external_root.add(parser)
    parser.add_argument(
        "--runtime", choices=RUNTIMES, help="the only runtime to judge (default: all that are installed)"
    )
    parser.add_argument("--json", action="store_true", help="every cell as JSON, for programs and bug reports")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the results of all cases; return 1 if a result of minorm is wrong or a runtime could not run."""
    extras.need("onnx")
    if not args.json:
        extras.need("rich")
    report = _judged(args)
    if args.json:
        output.show_json(report.plain())
    else:
        (_show if report.left_out is None else _show_file)(report)
    for name, why in report.failures.items():
        output.complain(f"minorm conform: {name}: {why}")
    return int(not report.is_well)


def _judged(args: argparse.Namespace) -> Report:
    from minorm.conformance import file_cases
    from minorm.conformance.report import conform, conform_file

    runtimes = None if args.runtime is None else [args.runtime]
    if args.model is None:
        for name in OF_A_MODEL:
            if getattr(args, name) not in (None, []):
                raise ValueError(f"--{name.replace('_', '-')} needs MODEL.onnx, but no model is given")
        return conform(runtimes)
    shapes, values = shape_option.parse(args.shape), input_option.parse(args.input)
    most = limits.ONNX if args.max_bytes is None else args.max_bytes
    return conform_file(file_cases.read(args.model, shapes, values, most, args.external_root), runtimes)


def _show_file(report: Report) -> None:
    from minorm.cli.terminal.screen import Screen

    console = Screen()
    if not report.cells and not report.left_out:
        console.print("the file has no normalization that ONNX defines")
        return
    nodes: dict[tuple[str, str], dict[str, list[str]]] = {}
    for cell in report.cells:
        verdicts = nodes.setdefault((cell.case, f"{cell.operator} {cell.opset}"), {})
        by = f" by {cell.error:.1g}" if cell.error is not None and " is off by " in cell.said else ""
        verdicts.setdefault(cell.verdict, []).append(cell.runtime + by)
    for (node, operator), verdicts in nodes.items():
        console.print(f"{printable(node)}: {operator}")
        for verdict, runtimes in verdicts.items():
            console.print(f"  {verdict}: {', '.join(runtimes)}")
    for verdict, words in (("wrong", "is wrong"), ("unsupported", "does not run")):
        for (runtime, said, page), names in _reasons(report.cells, verdict).items():
            console.print(f"\n{runtime} {words}: {printable(said)}{page and f' ({page})'}")
            console.print(f"  {', '.join(map(printable, names))}")
    for node, why in (report.left_out or {}).items():
        console.print(f"\nnot judged: {printable(node)}: {printable(why)}")


def _reasons(cells: list[Cell], verdict: str) -> dict[tuple[str, str, str], list[str]]:
    """Find the cells that have this verdict, and group them by runtime and reason.

    Return a dict from (runtime, reason, page of the documentation) to the names of the cases.
    """
    found: dict[tuple[str, str, str], list[str]] = {}
    for cell in cells:
        if cell.verdict == verdict:
            seen = cell.said if verdict == "unsupported" else f"{cell.said} (no known defect)"
            page = f"docs/conformance/{cell.cause}.md" if cell.cause else ""
            found.setdefault((cell.runtime, cell.defect or seen, page), []).append(cell.case)
    return found


def _show(report: Report) -> None:
    from minorm.cli.terminal.screen import Screen

    console = Screen()
    names = list(dict.fromkeys(cell.runtime for cell in report.cells))
    console.print(_by_version(report.cells, names) if len(names) <= 4 else _by_runtime(report.cells, names))
    console.print("\nright/wrong/unsupported cells, and the fewest right digits of the right float32 cells")
    for (runtime, said), operators in _wrong_opsets_by_case(report.cells).items():
        console.print(f"\n{runtime} is wrong: {printable(said)}")
        for operator, cases in operators.items():
            console.print(f"  {operator}: {'; '.join(f'{case} ({opsets})' for case, opsets in cases.items())}")
    versions = ", ".join(f"{name} {version or 'not installed'}" for name, version in report.versions.items())
    console.print(f"\n{versions}")


def _by_version(cells: list[Cell], names: list[str]) -> Any:
    """Return a table with a row for each version of an operator and a column for each runtime."""
    rows: dict[str, list[Cell]] = {}
    for cell in cells:
        rows.setdefault(f"{cell.operator} {cell.opset}", []).append(cell)
    table = _table("operator", *names)
    for title, of in rows.items():
        table.add_row(title, *(_count([cell for cell in of if cell.runtime == name]) for name in names))
    return table


def _by_runtime(cells: list[Cell], names: list[str]) -> Any:
    """Return a table with a row for each runtime.

    A row has the numbers of right, wrong and unsupported cells, and the operators that the runtime computes wrongly.
    """
    table = _table("runtime", "cells", "wrong in")
    for name in names:
        of = [cell for cell in cells if cell.runtime == name]
        wrong = dict.fromkeys(cell.operator.removesuffix("alization") for cell in of if cell.verdict == "wrong")
        table.add_row(name, _count(of), ", ".join(wrong))
    return table


def _table(*columns: str) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for place, name in enumerate(columns):
        table.add_column(name, no_wrap=place < 2 or len(columns) > 3)
    return table


def _count(cells: list[Cell]) -> str:
    from minorm.conformance.verdict import counted

    right, wrong, unsupported, digits = counted(cells)
    return f"{right}/{wrong}/{unsupported}" + ("" if digits is None else f"  {digits:.1f}")


def _wrong_opsets_by_case(cells: list[Cell]) -> dict[tuple[str, str], dict[str, dict[str, str]]]:
    """Return the opsets at which cells are wrong.

    The result maps (runtime, reason) to a dict from operators. Each operator is mapped to a dict from cases to a text
    that lists the opsets.
    """
    told: dict[tuple[str, str], dict[str, dict[str, str]]] = {}
    for cell in cells:
        if cell.verdict == "wrong":
            cases = told.setdefault((cell.runtime, cell.defect or f"{cell.said} (no known defect)"), {})
            opsets = cases.setdefault(cell.operator, {})
            opsets[cell.case] = ", ".join(filter(None, [opsets.get(cell.case), str(cell.opset)]))
    return told
