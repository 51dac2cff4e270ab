"""Lab 15: which packages a mended function calls."""

from __future__ import annotations

from minorm.labs.calling.borrowed import packages_of

__all__ = ["packages_of"]
