"""Runs in the process of a student's module, for checks that need the module: builds arguments and calls functions.

There is one module per lab. Nothing in these modules decides, counts or measures, because the student's code is in the
same process and may have replaced any function. minorm.labs.checks computes the right answers, and a student's process
cannot import that package.

A teacher's own lab has such a module in its folder. The judge sends the module's text to the process (see own).
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any, NamedTuple


class Beside(NamedTuple):
    """A module that runs beside the student's: its name, and its text if it belongs to a teacher's own lab."""

    name: str
    text: str = ""

    def module(self) -> Any:
        """Return the module. If `text` is set, the module is made from this text, once; otherwise it is imported."""
        if self.text and self.name not in sys.modules:
            made = ModuleType(self.name)
            exec(compile(self.text, f"{self.name}.py", "exec"), made.__dict__)
            sys.modules[self.name] = made
        return importlib.import_module(self.name)
