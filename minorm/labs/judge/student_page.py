"""Writes a page for each student, with checks, results and points: one HTML file that loads no other file."""

from __future__ import annotations

import re
from pathlib import Path

from minorm.labs.scores import Outcome, Report
from minorm.serialization import atomic
from minorm.support.safe_names import for_page

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; border-bottom: 1px solid #8884; }
td.points { text-align: right; white-space: nowrap; }
tr.passed td.status { color: #1a7f37; }
tr.other td.status { color: #b3261e; font-weight: 600; }
pre { white-space: pre-wrap; margin: .3rem 0 0; }
@media (prefers-color-scheme: dark) {
  body { background: #16181d; color: #e6e6e6; }
  tr.passed td.status { color: #6fdd8b; }
  tr.other td.status { color: #ff9c92; }
}
"""
LONGEST = 60  # letters of a page's name: with four bytes each it stays below the 255 that a file system takes
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def html(student: str, report: Report | None, problem: str = "") -> str:
    """Return the page of a report, or a page that says why there is no report."""
    title = f"Lab {report.lab}, {report.title}: {student}" if report else student
    parts = [f"<h1>{for_page(title)}</h1>"]
    if report is None:
        parts.append(f"<p>Not graded: {for_page(problem)}.</p>")
    else:
        parts.append(f"<p><strong>{report.score:g} of {report.points:g} points.</strong></p>")
        if report.remark:
            parts.append(f"<p>{for_page(report.remark)}.</p>")
        parts.append("<table><thead><tr><th>Task<th>Check<th>Points<th>Result</tr></thead><tbody>")
        parts += [_row(row) for row in report.outcomes]
        parts.append("</tbody></table>")
        if report.notes:
            notes = "".join(f"<li>{for_page(note)}" for note in report.notes)
            parts.append(f"<h2>Statements of the file that failed</h2><ul>{notes}</ul>")
        if report.walls:
            parts.append(f"<p><small>{for_page(report.walls)}</small></p>")
    head = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>{for_page(title)}</title><style>{STYLE}</style>"
    )
    return head + "\n" + "\n".join(parts) + "\n</html>\n"


def _row(row: Outcome) -> str:
    detail = f"<pre>{for_page(chr(10).join(row.detail))}</pre>" if row.detail else ""
    kind = "passed" if row.status == "passed" else "other"
    return (
        f'<tr class="{kind}"><td>{for_page(row.task)}<td>{for_page(row.title)}'
        f'<td class="points">{row.earned:g} of {row.points:g}<td class="status">{for_page(row.status)}{detail}</tr>'
    )


def write(folder: Path, student: str, text: str, taken: set[str]) -> Path:
    """Write a page under a unique name made from the student's name; return the path."""
    stem = re.sub(r"[^\w.-]+", "_", student).lstrip(".")[:LONGEST] or "student"
    name, number = f"{stem}.html", 1
    while name.lower() in taken:
        number += 1
        name = f"{stem}-{number}.html"
    taken.add(name.lower())
    with atomic.replacing(folder / name, "labs grade") as file:
        file.write(text.encode())
    return folder / name
