"""What `minorm check` shows, from 80 columns on. Words carry the meaning; colours only repeat it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from minorm.cli.check import Verdict
    from minorm.onnx.checking.inspection import Inspection, Row, Weight

YES, NO, DIM, ODD = "blue", "bold red", "dim", "yellow"
STATES = {"ok": f"bold {YES}", "FAILED": NO, "-": DIM}


def _text(text: str, style: str = "") -> Text:
    """What a file says, which may be anything: characters that move a terminal's cursor are written as escapes."""
    return Text(_printable(text), style)


def _assemble(*parts: str | tuple[str, str]) -> Text:
    return Text.assemble(*(_printable(p) if isinstance(p, str) else (_printable(p[0]), p[1]) for p in parts))


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def show(console: Console, found: Inspection, verdicts: Sequence[Verdict], brief: bool = False) -> None:
    """Print everything; with `brief` operators and weights are counted, not listed."""
    for part in _parts(found, verdicts, brief):
        console.print(part)
        console.print()
    console.print(_end(found, verdicts))


def _parts(found: Inspection, verdicts: Sequence[Verdict], brief: bool) -> Iterator[Any]:
    yield _facts(found.facts)
    yield _operators(found.rows) if brief else _nodes(found.rows)
    if found.weights and not brief:
        yield _weights(found.weights)
    if found.norms:
        yield _kinds(found) if brief else _norms(found)
    odd = _odd(found)
    if odd is not None:
        yield odd
    if found.unsupported:
        yield _unsupported(found.unsupported)
    yield _verdicts(verdicts)


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


def _nodes(rows: Sequence[Row]) -> Group:
    table = _table()
    table.add_column("node", overflow="fold", ratio=1)
    table.add_column("operator", overflow="fold")
    for name in ("version", "runs", "trains", "parameters"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            _text(_short(row.node, row.operator)),
            _text(row.operator),
            str(row.since) if row.since else _text("?", NO),
            _text("yes", YES) if row.runs else _text("NO", NO),
            _text("yes", YES) if row.trains else _text("-", DIM),
            f"{row.parameters:,}" if row.parameters else _text("-", DIM),
        )
    return _section("Nodes", _count(rows), table)


def _short(node: str, operator: str) -> str:
    """The name without the operator at its end, `layer1/bn/BatchNormalization`, which stands in the next column."""
    return node.removesuffix(f"/{operator}") or node


def _count(rows: Sequence[Row]) -> str:
    refused = sum(not row.runs for row in rows)
    runs = f"minorm runs {len(rows) - refused} of {len(rows)}" if refused else f"minorm runs all {len(rows)}"
    return f"{runs}; gradient flows through {sum(row.trains for row in rows)}"


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
    """What `load` makes a Parameter."""
    table = _table()
    table.add_column("weight", overflow="fold", ratio=1)
    table.add_column("read by", overflow="fold")
    table.add_column("shape", justify="right", no_wrap=True)
    table.add_column("numbers", justify="right", no_wrap=True)
    for weight in weights:
        shape = "x".join(map(str, weight.shape)) or "number"
        table.add_row(_text(weight.name), _text(", ".join(weight.readers)), shape, f"{weight.count:,}")
    total = sum(weight.count for weight in weights)
    return _section(
        "Would train", f"{total:,} numbers in {len(weights)} weights; load(trainable=...) changes it", table
    )


def _norms(found: Inspection) -> Group:
    table = _table()
    table.add_column("node", overflow="fold", ratio=1)
    table.add_column("operator", overflow="fold")
    for name in ("version", "mode", "momentum", "eps"):
        table.add_column(name, justify="left" if name == "mode" else "right", no_wrap=True)
    table.add_column("over", overflow="fold")
    for norm in found.norms:
        momentum, eps = ("-" if value is None else f"{value:.4g}" for value in (norm.momentum, norm.eps))
        node = _assemble(_short(norm.node, norm.operator), (" !", ODD) if norm.odd else "")
        name = norm.operator.removesuffix("Normalization")
        table.add_row(node, name, str(norm.since), norm.mode or _text("-", DIM), momentum, eps, norm.over)
    marked = sum(bool(norm.odd) for norm in found.norms)
    return _section("Normalizations", f"{len(found.norms)}, {marked} of them odd (!)" if marked else "", table)


def _kinds(found: Inspection) -> Group:
    """The normalizations that agree in everything but their size, counted."""
    table = _table()
    for name in ("nodes", "operator", "version", "mode", "momentum", "eps", "odd"):
        table.add_column(name, justify="left" if name in ("operator", "mode") else "right", no_wrap=True)
    kinds = Counter((n.operator, n.since, n.mode, n.momentum, n.eps) for n in found.norms)
    for kind, number in kinds.most_common():
        odd = sum(bool(n.odd) for n in found.norms if (n.operator, n.since, n.mode, n.momentum, n.eps) == kind)
        momentum, eps = ("-" if value is None else f"{value:.4g}" for value in kind[3:])
        mark = _text(str(odd), ODD) if odd else _text("-", DIM)
        table.add_row(str(number), kind[0], str(kind[1]), kind[2] or _text("-", DIM), momentum, eps, mark)
    return _section("Normalizations", str(len(found.norms)), table)


def _odd(found: Inspection) -> Group | None:
    """Each oddity once, under the nodes it is found in."""
    where: dict[str, list[str]] = {}
    for norm in found.norms:
        for sentence in norm.odd:
            where.setdefault(sentence, []).append(_short(norm.node, norm.operator))
    if not where:
        return None
    grid = Table.grid(padding=(0, 1))
    grid.add_column(style=ODD, no_wrap=True)
    grid.add_column(overflow="fold")
    told: dict[tuple[str, ...], list[str]] = {}
    for sentence, nodes in where.items():
        told.setdefault(tuple(nodes), []).append(sentence)
    for names, sentences in told.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        grid.add_row("", _text(f"node{'s' if len(names) > 1 else ''} {', '.join(names[:3])}{more}", DIM))
        for sentence in sentences:
            grid.add_row("!", sentence)
    return _section("Odd", "valid, but worth knowing", grid)


def _unsupported(rows: Sequence[Row]) -> Group:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for row in rows:
        version = f" {row.since}" if row.since else ""
        grid.add_row(_text("NO", NO), _assemble(f"{row.operator}{version}, {row.node}", (f"\n{row.why}", DIM)))
    return _section("Not supported", f"{len(rows)} nodes", grid)


def _verdicts(verdicts: Sequence[Verdict]) -> Group:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style=DIM, no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for verdict in verdicts:
        grid.add_row(verdict.judge, _text(verdict.state, STATES[verdict.state]), _text(verdict.text))
    return _section("Verdict", "", grid)


def _end(found: Inspection, verdicts: Sequence[Verdict]) -> Text:
    failed = [verdict.judge for verdict in verdicts if verdict.state == "FAILED"]
    if failed:
        return _text(f"Failed: {', '.join(failed)}.", NO)
    odd = sum(bool(norm.odd) for norm in found.norms)
    return _text(f"Nothing failed{f'; {odd} normalization(s) are odd' if odd else ''}.", "bold")
