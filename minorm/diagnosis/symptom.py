"""A symptom: what the statistic of a finding shows, before findings.py decides how severe it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

NOTE, WARNING, ERROR = "note", "warning", "error"


@dataclass
class Symptom:
    """An observation with the level that its statistic gives; harms: whether it needs harm to stand above a note."""

    name: str
    layer: str | None
    level: str
    numbers: dict[str, Any]
    harms: bool = False
