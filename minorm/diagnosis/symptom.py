"""Symptom: an observation about a layer, before findings.py decides how severe it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

NOTE, WARNING, ERROR = "note", "warning", "error"


@dataclass
class Symptom:
    """An observation about a layer, with its level.

    If `harms` is True, the level applies only if the model is worse in evaluation.
    """

    name: str
    layer: str | None
    level: str
    numbers: dict[str, Any]
    harms: bool = False
