"""The lines of benchmarks.gpu as tables."""

from __future__ import annotations

from typing import Any

Line = dict[str, Any]


def report(lines: list[Line]) -> str:
    """Write the report: wrong results first, then the figures."""
    parts = [lost(lines), parity(lines), training(lines), *speed(lines), small(lines)]
    return "\n\n".join(part for part in parts if part)


def lost(lines: list[Line]) -> str:
    """List the cases that gave no figures, and why."""
    found = [f"  LOST {line['family']}: {line['case']}: {line['error']}" for line in lines if "error" in line]
    return "\n".join([f"{len(found)} cases lost", *found]) if found else ""


def parity(lines: list[Line]) -> str:
    """Say how many results are right, and which are wrong."""
    judged = [line for line in lines if "passed" in line]
    found = []
    for line in judged:
        if not line["passed"]:
            what = f"the error of {line['worst']}" if "worst" in line else "the error"
            same = "" if line["repeats"] else ", and a second run gave other bits"
            found.append(f"  WRONG {line['case']}: {what} is {line['share']:.3g} of what is allowed{same}")
    right = len(judged) - len(found)
    head = f"parity: {right} of {len(judged)} cases right, in poisoned memory, with the same bits twice"
    return "\n".join([head, *found]) if judged else ""


def speed(lines: list[Line]) -> list[str]:
    """A table a type: milliseconds, share of the copy's rate, PyTorch's time over ours, forward and backward."""
    rates = [line["bytes a second"] for line in lines if "bytes a second" in line]
    found = [f"copy: {rates[-1] / 1e9:.0f} GB/s, read and written"] if rates else []
    tables: dict[str, list[Line]] = {}
    for line in lines:
        if line["family"].startswith("speed") and "error" not in line:
            tables.setdefault(line["family"], []).append(line)
    for title, rows in tables.items():
        columns = f"{'ms   share   eager':>23}"
        head = [f"{title:52} {'forward':>23} {'backward':>23}", f"{'':52} {columns} {columns}"]
        found.append("\n".join([*head, *[_row(line, rates[-1] if rates else None) for line in rows]]))
    return found


def _row(line: Line, rate: float | None) -> str:
    text = f"{line['case']:52}"
    for number, way in enumerate(("forward", "backward")):
        ours, share, ratio = line[f"minorm {way}"], "", ""
        if rate is not None and "floors" in line and ours:
            share = f"{line['floors'][number] / (ours / 1000) / rate:.2f}"
        if f"torch {way}" in line and ours:
            ratio = f"{line[f'torch {way}'] / ours:.2f}"
        text += f" {ours:7.3f} {share:>7} {ratio:>7}"
    return text


WAYS = ("minorm eager", "minorm graph", "torch eager", "torch graph", "torch compile")


def training(lines: list[Line]) -> str:
    """A table of training steps in milliseconds: a network, batch and type a row, a way a column."""
    rows: dict[str, Line] = {}
    for line in lines:
        if line["family"] in ("training", "compile") and "error" not in line:
            rows.setdefault(line["case"], {}).update({way: line[way] for way in WAYS if way in line})
    if not any(rows.values()):
        return ""
    head = f"{'a training step, ms':36}" + "".join(f"{way:>15}" for way in WAYS)
    body = [
        f"{case:36}" + "".join(f"{row[way]:15.2f}" if way in row else f"{'':15}" for way in WAYS)
        for case, row in rows.items()
    ]
    return "\n".join([head, *[line.rstrip() for line in body]])


def small(lines: list[Line]) -> str:
    """List the microseconds that a small operation takes from Python."""
    found = []
    for line in lines:
        if line["family"] == "overhead" and "error" not in line:
            theirs = f", PyTorch {line['torch']:.2f}" if "torch" in line else ""
            found.append(f"{line['case']}: minorm {line['minorm']:.2f} us a call{theirs}")
    return "\n".join(found)
