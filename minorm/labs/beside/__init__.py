"""What must run where a student's module is, and no more: to build what it is given, call it, and hand on its answer.

A module a lab. Nothing here decides, counts or measures: the student's code is in the same process and may have put
something else in the place of any of it. Right answers are computed in minorm.labs.checks, which cannot be imported
there.

A lab of a teacher's own has such a module as text, which is sent like the submission (see own).
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any, NamedTuple


class Beside(NamedTuple):
    """Such a module: its name, and its text where it is not one of minorm's."""

    name: str
    text: str = ""

    def module(self) -> Any:
        """The module itself, imported, or made of its text once."""
        if self.text and self.name not in sys.modules:
            made = ModuleType(self.name)
            exec(compile(self.text, f"{self.name}.py", "exec"), made.__dict__)
            sys.modules[self.name] = made
        return importlib.import_module(self.name)
