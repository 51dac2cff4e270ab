"""Write a Markdown table of the operators that minorm reads, differentiates and writes, with their versions.

python -m minorm.onnx.operators.table docs/onnx-operators.md       puts the table between the two marks in this file
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import onnx

from minorm.onnx.graph import kinds, registry
from minorm.onnx.graph.versions import PUBLISHED
from minorm.onnx.operators import rules  # noqa: F401  importing the rules registers them
from minorm.onnx.operators.expansions import EXPANSIONS
from minorm.serialization import atomic

BEGIN, END = (
    "<!-- operators: python -m minorm.onnx.operators.table docs/onnx-operators.md -->",
    "<!-- end of operators -->",
)


def table() -> str:
    """Return the table: for each operator, the versions read, the inputs with a gradient, and the versions written.

    The last lines are for the domains whose operators are expanded into ONNX's operators.
    """
    read: dict[str, set[int]] = {}
    for operator, since in registry.READERS:
        read.setdefault(operator, set()).add(since)
    written: dict[str, set[int]] = {}
    for rules_of_target in registry.WRITERS.values():
        for writer in rules_of_target:
            if writer.operator is not None:
                written.setdefault(writer.operator, set()).update(writer.versions())
    lines = [
        f"| {operator} | {_versions(read.get(operator, ()))} | {', '.join(gradients(operator))} | "
        f"{_versions(written.get(operator, ()))} |"
        for operator in sorted(set(read) | set(written))
    ]
    return "\n".join(["| operator | read | gradient of | written |", "|---|---|---|---|", *lines, *_elsewhere()])


def gradients(operator: str) -> list[str]:
    """List the inputs to which a gradient flows in the newest version of an operator."""
    since = max(version for name, version in registry.READERS if name == operator)
    schema, fixed = onnx.defs.get_schema(operator, since, ""), registry.READERS[operator, since].fixed
    fixed = () if callable(fixed) else fixed  # it depends on the node
    if operator not in kinds.CARRIERS and not any(_may_be_float(formal.types) for formal in schema.outputs):
        return []
    return [x.name for i, x in enumerate(schema.inputs) if i not in fixed and _may_be_float(x.types)]


def _may_be_float(types: Iterable[str]) -> bool:
    return any("float" in name or "double" in name for name in types)


def _elsewhere() -> list[str]:
    """Return a line for each domain except ONNX's."""
    names: dict[str, list[str]] = {}
    for domain, operator in sorted(EXPANSIONS):
        names.setdefault(domain or "of ONNX's own domain, but of onnxruntime", []).append(operator)
    rest = "as the operators that they stand for"
    return [
        f"| {domain}: {', '.join(found)} | all | {rest} | written back as they are |" for domain, found in names.items()
    ]


def _versions(since: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(since)))


def unread() -> dict[str, list[int]]:
    """Find unread versions of operators that minorm reads in other versions."""
    known = {operator for operator, _ in registry.READERS}
    found = {o: [v for v in PUBLISHED[o] if (o, v) not in registry.READERS] for o in sorted(known)}
    return {operator: versions for operator, versions in found.items() if versions}


def page(text: str) -> str:
    """Return the page with a new table between its marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


def main(path: str) -> None:
    """Replace the table in a file by a new table."""
    text = page(Path(path).read_text(encoding="utf-8"))
    with atomic.replacing(path, "table") as file:
        file.write(text.encode())


if __name__ == "__main__":
    main(sys.argv[1])
