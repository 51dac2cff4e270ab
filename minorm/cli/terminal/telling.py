"""What a training run says while it goes: with rich a bar that moves, without it plain lines."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minorm.cli.terminal import output
from minorm.support.masking import printable
from minorm.training import Score


class Teller:
    """Lines of text, one for each thing that is done."""

    def say(self, text: str) -> None:
        """One line."""
        output.say(text)

    @contextmanager
    def following(self, steps: int, done: int) -> Iterator[Any]:  # noqa: ARG002
        """What is called after each step, with the score so far."""
        yield _silent


class BarTeller(Teller):
    """The same lines above a bar with loss, accuracy, speed and the time left."""

    def __init__(self) -> None:
        from minorm.cli.terminal.screen import Screen

        self.console = Screen()

    def say(self, text: str) -> None:
        """One line, above the bar."""
        self.console.print(printable(text), soft_wrap=True)

    @contextmanager
    def following(self, steps: int, done: int) -> Iterator[Any]:
        """What moves the bar."""
        from minorm.progress import TrainingBar

        with TrainingBar(self.console, "training", steps, done) as bar, output.masked():
            yield bar.after_step


def teller() -> Teller:
    """One that fits what is installed."""
    return BarTeller() if importlib.util.find_spec("rich") is not None else Teller()


def _silent(score: Score) -> None:
    pass
