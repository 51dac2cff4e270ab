"""Diagnosis: the findings and layers as objects, as a printed report, and as plain values for JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any

from minorm.diagnosis import finding_words
from minorm.diagnosis.findings import Gap
from minorm.diagnosis.measured import Measured
from minorm.support.documented import documented
from minorm.support.safe_names import printable

WIDTH = 100
HEAD = ("layer", "kind", "gap", "offset", "digits lost", "eps/variance", "batch error", "findings")
MARK = {"error": "ERROR", "warning": "WARNING", "note": "note"}


@documented(
    {},
    name="the name of the finding in docs/doctor.md",
    layer="the module's dotted name; None for a finding about the whole model",
    severity='"error", "warning" or "note"',
    numbers="the measured numbers, by name",
    why="why the numbers matter",
    fix="what to do about it",
    after="the layer whose fault causes this finding; None if no layer does",
    cause="the layer that explains this finding; None if no layer does",
)
@dataclass(frozen=True)
class Finding:
    """One fault or oddity that `diagnose` found; `print(finding)` shows the finding in one line.

    Example:
        >>> from minorm.diagnosis import Finding
        >>> finding = Finding("dead_channel", "2", "warning", {}, why="nothing passes", fix="train it again")
        >>> finding.layer, finding.fix
        ('2', 'train it again')
    """

    name: str
    layer: str | None
    severity: str
    numbers: dict[str, Any]
    why: str
    fix: str
    after: str | None = None
    cause: str | None = None

    def __str__(self) -> str:
        where = "" if self.layer is None else f" in {printable(self.layer)}"
        return f"{MARK[self.severity]}: {self.name}{where}: {finding_words.words(self.name, self.numbers).seen}"


@documented(
    {},
    findings="the findings, the worst first",
    layers="a dict of numbers for each normalization",
    images="the number of images on which the model ran; 0 if it ran on noise",
    batch_size="the batch size of training; None if it is unknown",
    gap="how far evaluation is from normalizing with batch statistics; None without running statistics, or on noise",
    measured="all measurements",
)
@dataclass(frozen=True)
class Diagnosis:
    """The result of `diagnose`; `print(diagnosis)` shows the whole report.

    Example:
        >>> from minorm.diagnosis import Diagnosis
        >>> Diagnosis(findings=[], layers=[], images=0, batch_size=None).is_healthy
        True
    """

    findings: list[Finding]
    layers: list[dict[str, Any]]
    images: int
    batch_size: int | None
    gap: Gap | None = None
    measured: Measured | None = field(default=None, repr=False, compare=False)

    @property
    def is_healthy(self) -> bool:
        """Whether no finding is more severe than a note."""
        return all(finding.severity == "note" for finding in self.findings)

    def plain(self) -> dict[str, Any]:
        """Return the diagnosis as dicts, lists, numbers and texts."""
        return {
            "images": self.images,
            "batch_size": self.batch_size,
            "gap": None if self.gap is None else self.gap.numbers,
            "findings": [asdict(finding) for finding in self.findings],
            "layers": self.layers,
        }

    def __str__(self) -> str:
        parts = [self._head(), _table([_cells(row) for row in self.layers]), self._modes()]
        for _, alike in groupby(self.findings, key=lambda f: (f.severity, f.name, f.after, f.cause)):
            parts.append(_block(list(alike)))
        return "\n\n".join(filter(None, parts))

    def _head(self) -> str:
        counts = [(sum(f.severity == s for f in self.findings), s) for s in ("error", "warning", "note")]
        said = [f"{count} {severity}{'s' if count > 1 else ''}" for count, severity in counts if count]
        batch = "" if self.batch_size is None else f", batches of {self.batch_size}"
        images = f"{self.images} images" if self.images else "noise instead of images"
        return f"{images}{batch}: {', '.join(said) or 'nothing found'}"

    def _modes(self) -> str:
        if self.gap is None:
            return ""
        return textwrap.fill(f"From batch statistics to evaluation: {finding_words.changes(self.gap.numbers)}.", WIDTH)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    def number(name: str, form: str) -> str:
        return "-" if row[name] is None else format(row[name], form)

    return (
        printable(row["layer"]) or "the model",
        row["kind"],
        number("gap", ".3f"),
        number("offset", ".3f"),
        number("digits_lost", ".1f"),
        number("eps_over_variance", ".1g"),
        number("batch_error", ".0%"),
        ", ".join(row["findings"]),
    )


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    if not rows:
        return ""
    columns = [max(map(len, column)) for column in zip(HEAD, *rows, strict=True)]
    last = len(HEAD) - 1
    lines = [
        "  ".join(
            cell.rjust(width) if 2 <= place < last else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, columns, strict=True))
        ).rstrip()
        for line in (HEAD, *rows)
    ]
    lines.insert(1, "  ".join("-" * width for width in columns[:last]) + "  " + "-" * columns[last])
    return "\n".join(lines)


def _block(alike: list[Finding]) -> str:
    """Return one text for findings with the same name and severity.

    It has the numbers of each layer, and then the reason and the fix.
    """
    first = alike[0]
    tail = f", after {first.after}" if first.after else f", because of {first.cause}" if first.cause else ""
    lines = [printable(f"{MARK[first.severity]} {first.name}{tail}")]
    for finding in alike:
        place = "" if finding.layer is None else f"{printable(finding.layer)}: "
        lines.append(_filled(f"{place}{finding_words.words(finding.name, finding.numbers).seen}", "  "))
    if first.severity != "note" or not (first.after or first.cause):
        lines.append(_filled(f"why  {first.why}", "  ", "       "))
        fixes = list(dict.fromkeys(finding.fix for finding in alike))
        lines += [_filled(f"fix  {fix}", "  ", "       ") for fix in fixes[:3]]
    return "\n".join(lines)


def _filled(text: str, indent: str, further: str | None = None) -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  " if further is None else further,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
