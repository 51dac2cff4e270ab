"""Lab 18: finds the packages that a student's function calls."""

from __future__ import annotations

from minorm.labs.calling.borrowed import packages_of

__all__ = ["packages_of"]
