"""Shows a report of `minorm check` on a terminal of 80 columns or more. No information is in the colours alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from minorm.cli.terminal.words import bare, counted, listed, odd, shape, short, totals
from minorm.onnx.checking.layers import overview
from minorm.onnx.loading import cutting
from minorm.support.safe_names import printable, printable_lines

if TYPE_CHECKING:
    from minorm.cli.views.check_report import Report, Verdict
    from minorm.onnx.checking.inspection import Inspection, Row, TensorRole, Weight
    from minorm.onnx.checking.layers import LayerRow

YES, NO, DIM, ODD = "blue", "bold red", "dim", "yellow"
BRIEF = 24  # layers
STATES = {"ok": f"bold {YES}", "FAILED": NO, "-": DIM}


def _text(text: str, style: str = "") -> Text:
    """Return the text in one line, even if a name in it has a line break."""
    return Text(printable(text), style)


def _lines(text: str, style: str = "") -> Text:
    return Text(printable_lines(text), style)


def _assemble(*parts: str | tuple[str, str]) -> Text:
    return Text.assemble(*(printable(p) if isinstance(p, str) else (printable(p[0]), p[1]) for p in parts))


def show(console: Console, report: Report, brief: bool = False, trainable: bool = False) -> None:
    """Print the report.

    brief        True shows an overview of the layers, and counts of operators and weights
    trainable    True shows the role of every tensor and the reason for it, instead of layers, nodes and normalizations
    """
    for part in _judgement(report) if trainable else _parts(report, brief):
        console.print(part)
        console.print()
    console.print(_end(report.found, report.verdicts))


def _parts(report: Report, brief: bool) -> Iterator[Any]:
    found = report.found
    yield _facts(found.facts)
    if report.layers:
        yield _layers(report, overview(report.layers, BRIEF) if brief else report.layers)
    yield _operators(found.rows) if brief else _nodes(found.rows)
    if found.weights and not brief:
        yield _weights(found.weights)
    if found.norms:
        yield _kinds(found) if brief else _norms(found)
    odd = _odd(found)
    if odd is not None:
        yield odd
    if found.unsupported:
        yield _unsupported(found)
    yield _verdicts(report.verdicts)


def _judgement(report: Report) -> Iterator[Any]:
    yield _facts(report.found.facts)
    if report.found.tensors:
        yield _tensors(report.found.tensors)
    if report.found.unsupported:
        yield _unsupported(report.found)
    yield _verdicts(report.verdicts)


def _head(title: str, note: str = "") -> Text:
    return _assemble((title, "bold"), ("  " + note if note else "", DIM))


def _section(title: str, note: str, body: Any) -> Group:
    return Group(_head(title, note), Padding(body, (0, 0, 0, 1)))


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style=DIM, border_style=DIM, show_edge=False)


def _grid() -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style=DIM, no_wrap=True)
    grid.add_column(overflow="fold")
    return grid


def _facts(facts: dict[str, Any]) -> Group:
    grid = _grid()
    grid.add_row("producer", _text(facts["producer"]))
    grid.add_row("opset", _text(f"{facts['opset']}, IR version {facts['ir_version']}"))
    for name in ("inputs", "outputs"):
        for place, text in enumerate(facts[name]):
            grid.add_row(name if place == 0 else "", _text(text))
    weights = f"{facts['numbers']:,} numbers in {facts['initializers']} initializers"
    if facts["parameters"] is not None:
        weights += f", {facts['parameters']:,} of them trained"
    if facts["external"]:
        weights += f"; in {', '.join(facts['external'])}"
    grid.add_row("weights", _text(weights))
    return _section(facts["file"], f"{facts['bytes']:,} bytes", grid)


def _layers(report: Report, rows: Sequence[LayerRow]) -> Group:
    """Return the table of layers, from the inputs to the outputs."""
    table, kept = _table(), any(row.fixed for row in rows)
    table.add_column("layer", overflow="fold", ratio=2)
    table.add_column("operators", overflow="fold", ratio=2)
    for name in ("output", "parameters", *(["fixed"] if kept else []), "mult.", "trains"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            _text(row.name),
            _text(counted(row.operators)),
            shape(row.shape) if row.shape is not None else _text("-", DIM),
            f"{row.parameters:,}" if row.parameters else _text("-", DIM),
            *([f"{row.fixed:,}" if row.fixed else _text("-", DIM)] if kept else []),
            short(row.multiplications) if row.multiplications else _text("-", DIM),
            _text(row.trains or "-", {"yes": YES, "": DIM}.get(row.trains, ODD)),
        )
    return _section("Layers", totals(report), table)


def _nodes(rows: Sequence[Row]) -> Group:
    table = _table()
    table.add_column("node, and its values", overflow="fold", ratio=1)
    table.add_column("operator", overflow="fold")
    for name in ("version", "runs", "trains", "parameters"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            _node(row),
            _text(row.operator),
            str(row.since) if row.since else _text("?", NO),
            _text("yes", YES) if row.runs else _text("NO", NO),
            _text("yes", YES) if row.trains else _text("-", DIM),
            f"{row.parameters:,}" if row.parameters else _text("-", DIM),
        )
    return _section("Nodes", _count(rows), table)


def _node(row: Row) -> Text:
    """Return the full name of a node and, below, the names of its outputs, which `load(outputs=[...])` accepts."""
    values = [name for name in row.values if name != row.node]
    return Text("\n").join([_text(row.node), *(_text(f"-> {name}", DIM) for name in values)])


def _count(rows: Sequence[Row]) -> str:
    refused = sum(not row.runs for row in rows)
    runs = f"minorm runs {len(rows) - refused} of {len(rows)}" if refused else f"minorm runs all {len(rows)}"
    trains = sum(row.trains for row in rows)
    return f"{runs}; gradients flow through {trains} node{'' if trains == 1 else 's'}"


def _operators(rows: Sequence[Row]) -> Group:
    table = _table()
    table.add_column("operator", overflow="fold")
    for name in ("version", "nodes", "runs", "trains", "parameters"):
        table.add_column(name, justify="right", no_wrap=True)
    for (operator, since), number in Counter((row.operator, row.since) for row in rows).most_common():
        own = [row for row in rows if (row.operator, row.since) == (operator, since)]
        runs, trains = sum(row.runs for row in own), sum(row.trains for row in own)
        numbers = sum(row.parameters for row in own)
        table.add_row(
            _text(operator),
            str(since) if since else _text("?", NO),
            str(number),
            _text("all", YES) if runs == number else _text(str(runs or "NO"), NO),
            _text("all", YES) if trains == number else _text(str(trains or "-"), DIM),
            f"{numbers:,}" if numbers else _text("-", DIM),
        )
    return _section("Nodes", _count(rows), table)


def _weights(weights: Sequence[Weight]) -> Group:
    """Return the table of weights that become Parameters in `load`."""
    table = _table()
    table.add_column("weight", overflow="fold", ratio=1)
    table.add_column("read by", overflow="fold")
    table.add_column("shape", justify="right", no_wrap=True)
    table.add_column("numbers", justify="right", no_wrap=True)
    for weight in weights:
        table.add_row(_text(weight.name), _text(", ".join(weight.readers)), shape(weight.shape), f"{weight.count:,}")
    total = sum(weight.count for weight in weights)
    return _section(
        "Would train", f"{total:,} numbers in {len(weights)} weights; load(trainable=...) chooses others", table
    )


def _tensors(tensors: Sequence[TensorRole]) -> Group:
    """Return the table of tensors, with the role of each tensor in `load` and the reason for this role."""
    table = _table()
    table.add_column("tensor", overflow="fold", ratio=2)
    table.add_column("is a", no_wrap=True)
    table.add_column("shape", justify="right", no_wrap=True)
    table.add_column("why", overflow="fold", ratio=3)
    for tensor in tensors:
        style = YES if tensor.role == "Parameter" else ""
        table.add_row(_text(tensor.name), _text(tensor.role, style), shape(tensor.shape), _text(tensor.why))
    counts = Counter(tensor.role for tensor in tensors)
    note = ", ".join(f"{count} {role}{'s' if count > 1 else ''}" for role, count in counts.items())
    return _section("What trains", f"{note}; load(trainable=...) chooses others", table)


def _norms(found: Inspection) -> Group:
    table = _table()
    table.add_column("node", overflow="fold", ratio=1)
    table.add_column("operator", overflow="fold")
    for name in ("version", "mode", "momentum", "eps"):
        table.add_column(name, justify="left" if name == "mode" else "right", no_wrap=True)
    table.add_column("over", overflow="fold")
    for norm in found.norms:
        momentum, eps = ("-" if value is None else f"{value:.4g}" for value in (norm.momentum, norm.eps))
        node = _assemble(bare(norm.node, norm.operator), (" !", ODD) if norm.odd else "")
        name = norm.operator.removesuffix("Normalization")
        table.add_row(
            node, _text(name), str(norm.since or "-"), norm.mode or _text("-", DIM), momentum, eps, _text(norm.over)
        )
    marked = sum(bool(norm.odd) for norm in found.norms)
    return _section("Normalizations", f"{len(found.norms)}, {marked} of them odd (!)" if marked else "", table)


def _kinds(found: Inspection) -> Group:
    """Return a table that counts the normalizations of each kind. Normalizations of a kind differ only in size."""
    table = _table()
    for name in ("nodes", "operator", "version", "mode", "momentum", "eps", "odd"):
        table.add_column(name, justify="left" if name in ("operator", "mode") else "right", no_wrap=True)
    kinds = Counter((n.operator, n.since, n.mode, n.momentum, n.eps) for n in found.norms)
    for kind, number in kinds.most_common():
        odd = sum(bool(n.odd) for n in found.norms if (n.operator, n.since, n.mode, n.momentum, n.eps) == kind)
        momentum, eps = ("-" if value is None else f"{value:.4g}" for value in kind[3:])
        mark = _text(str(odd), ODD) if odd else _text("-", DIM)
        table.add_row(str(number), _text(kind[0]), str(kind[1] or "-"), kind[2] or _text("-", DIM), momentum, eps, mark)
    return _section("Normalizations", str(len(found.norms)), table)


def _odd(found: Inspection) -> Group | None:
    """Return the section on what is odd: for each group of nodes, their names and sentences.

    Return None if nothing is odd.
    """
    told = odd(found)
    if not told:
        return None
    grid = Table.grid(padding=(0, 1))
    grid.add_column(style=ODD, no_wrap=True)
    grid.add_column(overflow="fold")
    for nodes, sentences in told.items():
        grid.add_row("", _text(listed(nodes), DIM))
        for sentence in sentences:
            grid.add_row("!", _text(sentence))
    return _section("Odd", "valid, but worth knowing", grid)


def _unsupported(found: Inspection) -> Group:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for row in found.unsupported:
        version = f" {row.since}" if row.since else ""
        node = _text(f"{row.operator}{version}, {row.node}")
        grid.add_row(_text("NO", NO), Text("\n").join([node, _lines(row.why, DIM)]))
    advice = cutting.advice(found.cuts)
    if advice:
        grid.add_row("", _text(advice))
    return _section("Not supported", f"{len(found.unsupported)} nodes", grid)


def _verdicts(verdicts: Sequence[Verdict]) -> Group:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style=DIM, no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for verdict in verdicts:
        grid.add_row(verdict.judge, _text(verdict.state, STATES[verdict.state]), _lines(verdict.text))
    return _section("Verdict", "", grid)


def _end(found: Inspection, verdicts: Sequence[Verdict]) -> Text:
    failed = [verdict.judge for verdict in verdicts if verdict.state == "FAILED"]
    if failed:
        return _text(f"Failed: {', '.join(failed)}.", NO)
    odd = sum(bool(norm.odd) for norm in found.norms)
    return _text(f"Nothing failed{f'; {odd} normalization(s) are odd' if odd else ''}.", "bold")
