"""`minorm check --html` writes one page that shows a model and loads nothing else.

The page draws the graph as blocks, one for each module that the nodes' names mention. Below this drawing, the page has
a drawing of each block and a table of all layers. All text from the file is escaped, and the page allows no script.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from minorm.cli.terminal.words import counted, listed, odd, shape, short, totals
from minorm.cli.views.drawing import MOST, Box, escaped, svg
from minorm.cli.views.page_style import STYLE
from minorm.onnx.checking import layers
from minorm.onnx.graph.lengths import declared_of
from minorm.onnx.loading import cutting

if TYPE_CHECKING:
    from minorm.cli.views.check_report import Report
    from minorm.onnx.checking.layers import LayerRow

MAX_OVERVIEW_BOXES = 48  # boxes of the drawing of the whole graph, if its modules allow it
MAX_BLOCK_BOXES = 1500  # boxes in the drawings of all blocks together
LINES = 3000  # lines in a drawing
ROWS = 3000  # rows of the table
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(report: Report) -> str:
    """Return the page of `minorm check --html` for this report."""
    title = escaped(report.found.facts["file"])
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        f"<title>{title}</title><style>{STYLE}</style></head><body><main>",
        f"<h1>{title}</h1><p>{escaped(totals(report))}</p>",
        _verdicts(report),
        _notes(report),
        _graph(report),
        _table(report.layers),
        _facts(report),
        "</main></body></html>",
    ]
    return "\n".join(filter(None, parts)) + "\n"


def _verdicts(report: Report) -> str:
    items = [
        f'<li class="{ {"ok": "ok", "FAILED": "bad"}.get(v.state, "none") }"><b>{escaped(v.judge)}</b> '
        f"{escaped(v.state)}<br><small>{escaped(v.text, 2000)}</small></li>"
        for v in report.verdicts
    ]
    return f'<ul class="verdicts">{"".join(items)}</ul>'


def _notes(report: Report) -> str:
    """Return the section on nodes that do not run, and on what is odd."""
    found = report.found
    notes = [f"{row.operator}, {row.node}: {row.why}" for row in found.unsupported]
    notes += filter(None, [cutting.advice(found.cuts)])
    notes += [f"{sentence} ({listed(nodes)})" for nodes, sentences in odd(found).items() for sentence in sentences]
    shown = "".join(f"<li>{escaped(note, 1000)}</li>" for note in notes[:40])
    more = f"<li>and {len(notes) - 40} more</li>" if len(notes) > 40 else ""
    return f"<h2>Worth knowing</h2><ul>{shown}{more}</ul>" if notes else ""


# The graph


def _graph(report: Report) -> str:
    far = layers.overview(report.layers, MAX_OVERVIEW_BOXES)
    if not far:
        return ""
    if len(far) > MOST:
        return (
            f"<h2>Graph</h2><p>The model has {len(far):,} layers without module names, which are too many to draw.</p>"
        )
    blocks = _blocks(report.layers, far)
    drawn, left = set[int](), MAX_BLOCK_BOXES
    for index, rows in enumerate(blocks):
        if 1 < len(rows) <= min(MOST, left):
            drawn.add(index)
            left -= len(rows)
    most = max((row.multiplications or 0 for row in far), default=0)
    boxes = [_box(row, most, f"block-{i}" if i in drawn else "") for i, row in enumerate(far)]
    known = report.found.proto.graph
    sources = {str(entry.name): _declared(entry) for entry in known.input}
    ends = {str(entry.name): _declared(entry) for entry in known.output}
    drawing = _drawing(far, boxes, sources, ends, "the graph of the model")
    inner = [_block(i, far, blocks[i]) for i in sorted(drawn)]
    note = "<p><small>Each box of several layers leads to its own drawing.</small></p>" if inner else ""
    return f'<h2>Graph</h2>{note}<div class="scroll">{drawing}</div>{"".join(inner)}'


def _blocks(rows: Sequence[LayerRow], far: Sequence[LayerRow]) -> list[Sequence[LayerRow]]:
    """Return, for each block of the overview, the layers in the block."""
    found, start = [], 0
    for block in far:
        end, gives = start, 0
        while end < len(rows) and gives < len(block.gives):
            gives += len(rows[end].gives)
            end += 1
        found.append(rows[start:end])
        start = end
    return found


def _block(index: int, far: Sequence[LayerRow], rows: Sequence[LayerRow]) -> str:
    most = max((row.multiplications or 0 for row in rows), default=0)
    boxes = [_box(row, most, "", f"{far[index].path}.") for row in rows]
    makers = {name: row.name for row in far for name in row.gives}
    wanted = {name: row.name for row in far if row is not far[index] for name in row.reads}
    sources = {name: "" for row in rows for name in row.reads - far[index].gives}
    ends = dict.fromkeys(sorted(far[index].gives & wanted.keys()), "")
    names = {name: f"from {makers.get(name, name)}" for name in sources}
    names |= {name: f"to {wanted[name]}" for name in ends}
    drawing = _drawing(rows, boxes, sources, ends, far[index].name, names)
    summary = f"<b>{escaped(far[index].name)}</b> {escaped(counted(far[index].operators))}"
    return f'<details><summary>{summary}</summary><div class="scroll" id="block-{index}">{drawing}</div></details>'


def _drawing(
    rows: Sequence[LayerRow],
    boxes: Sequence[Box],
    sources: dict[str, str],
    ends: dict[str, str],
    label: str,
    names: dict[str, str] | None = None,
) -> str:
    """Draw the layers between the values that come in (`sources`) and the values that go out (`ends`)."""
    named = names or {}
    read = {name for row in rows for name in row.reads}
    first = [name for name in sources if name in read]
    made = {name for row in rows for name in row.gives}
    last = [name for name in ends if name in made]
    pills = [Box(named.get(name, name), text, "value") for name, text in sources.items() if name in read]
    shift = len(pills)
    lines = [(i + shift, j + shift) for i, j in layers.edges(rows)]
    for place, row in enumerate(rows):
        lines += [(k, place + shift) for k, name in enumerate(first) if name in row.reads]
        lines += [(place + shift, shift + len(rows) + k) for k, name in enumerate(last) if name in row.gives]
    if len(lines) > LINES:
        return f"<p>The graph has {len(lines):,} connections, which are too many to draw.</p>"
    pills_after = [Box(named.get(name, name), ends[name], "value") for name in last]
    return svg([*pills, *boxes, *pills_after], sorted(lines), label)


def _box(row: LayerRow, most: int, link: str, above: str = "") -> Box:
    operators = counted({name.replace("Normalization", "Norm"): n for name, n in row.operators.items()}, 2)
    size = "" if row.shape is None else shape(row.shape)
    kind = {"yes": "trained", "partly": "trained", "frozen": "frozen", "no": "frozen"}.get(row.trains, "plain")
    numbers = f"{row.parameters:,} parameters" if row.parameters else "no parameters"
    cost = f", {short(row.multiplications)} multiplications" if row.multiplications else ""
    title = f"{row.name}: {operators}, {numbers}{cost}"
    name = row.name.removeprefix(above) if row.path else operators
    text = size if name == operators else " · ".join(filter(None, (operators, size)))
    return Box(name, text, kind, (row.multiplications or 0) / most if most else 0.0, link, title)


def _declared(entry: object) -> str:
    found = declared_of(entry)
    return "" if found is None else "x".join(str(n) or "?" for n in found)


# The tables


def _table(rows: Sequence[LayerRow]) -> str:
    if not rows:
        return ""
    most = max((row.multiplications or 0 for row in rows), default=0)
    head = "".join(
        f"<th{kind}>{name}</th>"
        for name, kind in (
            ("layer", ""), ("operators", ' class="wide"'), ("output", ""), ("parameters", ' class="number"'),
            ("fixed", ' class="number wide"'), ("mult.", ' class="number"'), ("trains", ""),
        )
    )  # fmt: skip
    body = "".join(_line(row, most) for row in rows[:ROWS])
    more = f"<p>and {len(rows) - ROWS:,} more layers</p>" if len(rows) > ROWS else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<h2>Layers</h2><div class="scroll">{table}</div>{more}'


def _line(row: LayerRow, most: int) -> str:
    share = 100 * (row.multiplications or 0) / most if most else 0.0
    bar = f'<i style="width:{share:.1f}%"></i>' if share >= 0.1 else ""
    cells = [
        f"<td>{escaped(row.name, 120)}</td>",
        f'<td class="wide">{escaped(counted(row.operators))}</td>',
        f"<td>{shape(row.shape) if row.shape is not None else ''}</td>",
        f'<td class="number">{_number(row.parameters)}</td>',
        f'<td class="number wide">{_number(row.fixed)}</td>',
        f'<td class="number cost">{short(row.multiplications) if row.multiplications else ""}{bar}</td>',
        f"<td>{row.trains}</td>",
    ]
    return f"<tr>{''.join(cells)}</tr>\n"


def _number(value: int) -> str:
    return f"{value:,}" if value else ""


def _facts(report: Report) -> str:
    facts = report.found.facts
    lines = [("producer", facts["producer"]), ("opset", f"{facts['opset']}, IR version {facts['ir_version']}")]
    lines += [(name, text) for name in ("inputs", "outputs") for text in facts[name][:40]]
    lines += [("weights", f"{facts['numbers']:,} numbers in {facts['initializers']:,} initializers"),
              ("size", f"{facts['bytes']:,} bytes")]  # fmt: skip
    return f"<h2>File</h2><dl>{_list(lines)}</dl>"


def _list(lines: Iterable[tuple[str, str]]) -> str:
    return "".join(f"<dt>{escaped(name)}</dt><dd>{escaped(text)}</dd>" for name, text in lines)
