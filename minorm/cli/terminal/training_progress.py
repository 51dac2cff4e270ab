"""Shows the progress of a training run: a moving bar if rich is installed, otherwise plain lines."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from minorm.cli.terminal import output
from minorm.support.safe_names import printable
from minorm.training import Score


class LineDisplay:
    """Prints plain lines of text."""

    def say(self, text: str) -> None:
        """Print one line."""
        output.say(text)

    @contextmanager
    def following(self, steps: int, done: int) -> Iterator[Any]:  # noqa: ARG002
        """Yield a function that the training calls with the score after each step; the function does nothing here."""
        yield _silent


class BarDisplay(LineDisplay):
    """Prints the lines above a bar with loss, accuracy, speed and the time left."""

    def __init__(self) -> None:
        from minorm.cli.terminal.screen import Screen

        self.console = Screen()

    def say(self, text: str) -> None:
        """Print one line above the bar."""
        self.console.print(printable(text), soft_wrap=True)

    @contextmanager
    def following(self, steps: int, done: int) -> Iterator[Any]:
        """Yield a function that moves the bar; the training calls this function with the score after each step."""
        from minorm.progress import TrainingBar

        with TrainingBar(self.console, "training", steps, done) as bar, output.masked():
            yield bar.after_step


def training_display() -> LineDisplay:
    """Return a BarDisplay if rich is installed, else a LineDisplay."""
    return BarDisplay() if importlib.util.find_spec("rich") is not None else LineDisplay()


def _silent(score: Score) -> None:
    pass
