"""Ctrl-C at every line: run a program again and again, and stop it before its first, second, third ... line."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import minorm

PACKAGE = str(Path(minorm.__file__).parent)


def at_every_line(
    run: Callable[[Any], Any], *files: str, make: Callable[[], Any] = lambda: None, most: int = 5000
) -> Iterator[Any]:
    """run(make()), stopped by a KeyboardInterrupt before the k-th line, k = 0, 1, 2 ... until it comes to its end.

    Lines count in the package, or only in those of its files that are named ("data/ahead.py"), and in contextlib. After
    each stop what was made is handed out: look then what is left of it.
    """
    found = (*(f"{PACKAGE}/{name}" for name in files or ("",)), contextlib.__file__)
    for k in range(most):
        made = make()
        lines = stopped_before(k, functools.partial(run, made), found)
        yield made
        if lines <= k:
            return
    raise AssertionError(f"not at the end after {most} lines")


def stopped_before(k: int, run: Callable[[], Any], files: tuple[str, ...]) -> int:
    """run(), where the k-th line in these files raises KeyboardInterrupt; how many lines came."""
    lines = 0

    def look(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        if event == "call":
            return look if frame.f_code.co_filename.startswith(files) else None
        if event == "line":
            lines += 1
            if lines == k + 1:
                raise KeyboardInterrupt
        return look

    before = sys.gettrace()
    sys.settrace(look)  # of this thread alone
    try:
        run()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return lines
