"""Runs next to a student's module, for checks that need it: builds arguments, calls functions, returns answers.

There is one module per lab. Nothing here decides, counts or measures: the student's code is in the same process and may
have replaced any of it. minorm.labs.checks computes the right answers; that process cannot import it.

A teacher's own lab has such a module as text, which is sent like the submission (see own).
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any, NamedTuple


class Beside(NamedTuple):
    """Such a module: its name, and its text if it is not one of minorm's."""

    name: str
    text: str = ""

    def module(self) -> Any:
        """Import the module, or make it from its text once."""
        if self.text and self.name not in sys.modules:
            made = ModuleType(self.name)
            exec(compile(self.text, f"{self.name}.py", "exec"), made.__dict__)
            sys.modules[self.name] = made
        return importlib.import_module(self.name)
