"""Sends a right function as source to the student's process, if the function takes a model, a node or a run.

    LAB.provide("5.3", recalibrate=Sent(right.recalibrate))

`Sent(right.recalibrate, lambda: {"rest": V.rest})` also passes these options to each call. These options are the values
of the variant that is graded.

The student's process receives only the function's source and the imports of the function's module. So this module may
import only what a student's process can import: it is in minorm/labs/checks/right, not in a module of checks. The judge
sends the function only to processes that are never asked about the task that the function solves (see cascade).
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any


class Sent:
    """A function and its source. The source may use only its own names and the imports of its module."""

    def __init__(self, function: Callable[..., Any], options: Callable[[], dict[str, Any]] = dict) -> None:
        self._function, self._options = function, options

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the function in this process."""
        return self._function(*args, **{**self._options(), **options})

    @property
    def source(self) -> str:
        """The code that a student's process runs to define the function under its own name."""
        tree = ast.parse(inspect.getsource(inspect.getmodule(self._function)))  # type: ignore[arg-type]
        imports = [ast.unparse(one) for one in tree.body if isinstance(one, (ast.Import, ast.ImportFrom))]
        name, options = self._function.__name__, self._options()
        bound = [f"import functools\n{name} = functools.partial({name}, **{options!r})"] if options else []
        return "\n".join([*imports, inspect.getsource(self._function), *bound])


class Told:
    """A right function that a student's process has received as source. Each call of it is reported to the judge."""

    def __init__(self, name: str, source: str, used: Callable[[], Any]) -> None:
        names: dict[str, Any] = {}
        exec(source, names)
        self._function, self._used = names[name], used

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the function and tell the judge."""
        self._used()
        return self._function(*args, **options)
