"""Writes the report's section on classes: scores of each class, classes that are never predicted, and calibration."""

from __future__ import annotations

from minorm.cli.views import charts, html_parts
from minorm.support.safe_names import for_page
from minorm.training import ClassificationReport
from minorm.training.metrics.classification_report import AVERAGES, ClassRow

HEAD = ("class", "", "precision", "recall", "F1", "AUROC", "images")


def html(report: ClassificationReport) -> str:
    """Return the section as HTML: a table, sentences and the calibration chart."""
    rows = [_row(row) for row in report.shown()]
    for name in AVERAGES:
        scores = getattr(report, name)
        rows.append((f"{name} average", "", *(f"{scores[key]:.3f}" for key in ("precision", "recall", "f1")), "", ""))
    said = "".join(f"<li>{for_page(line)}</li>" for line in report.sentences())
    chart = f'<div class="charts"><figure>{charts.calibration(report.calibration)}</figure></div>'
    return f"{html_parts.table(HEAD, rows, numbers=5)}<ul>{said}</ul>{chart}"


def _row(row: ClassRow) -> tuple[str, ...]:
    remark = "" if row.predicted else "never predicted" if row.support else "no images"
    area = "" if row.roc_auc is None else f"{row.roc_auc:.3f}"
    known = row.support or row.predicted
    scores = (f"{value:.3f}" if known else "" for value in (row.precision, row.recall, row.f1))
    return row.name, remark, *scores, area, f"{row.support:,}"
