"""Progress in the terminal: a bar with training loss, accuracy, images per second and the time left. This module needs
the package rich.

The training loop itself draws the bar, at most ten times a second. So no extra thread takes processor time from the
kernels.
"""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from minorm.training import Score

EVERY = 0.1  # the least number of seconds between two drawings


class TrainingBar:
    """A progress bar for one training run.

        with TrainingBar(console, "seed 0", steps) as bar:
            run.fit(bar.after_step)

    done  the number of steps that earlier parts of the run have made
    """

    def __init__(self, console: Console, title: str, steps: int, done: int = 0) -> None:
        self.console = console
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None, complete_style="blue", finished_style="blue"),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[score]}", markup=False),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=console,
            auto_refresh=False,
            expand=True,
        )
        self._task = self._progress.add_task(title, total=steps, completed=done, score="")
        self._waiting = 0  # the number of steps since the last drawing
        self._drawn = time.perf_counter()

    def __enter__(self) -> TrainingBar:
        self._progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._draw()
        self._progress.stop()

    def after_step(self, score: Score) -> None:
        """Count one step, and draw the bar if it was not drawn in the last tenth of a second."""
        self._waiting += 1
        self._score = score
        if time.perf_counter() - self._drawn >= EVERY:
            self._draw()

    def _draw(self) -> None:
        if self._waiting:
            self._progress.update(self._task, advance=self._waiting, score=describe(self._score))
            self._waiting = 0
        self._progress.refresh()
        self._drawn = time.perf_counter()


def describe(score: Score) -> str:
    """Return loss, accuracy and speed of the training batches as a text of constant width, which fits into a line of 80
    characters.
    """
    accuracy = "" if score.accuracy is None else f"  accuracy {score.accuracy:7.2%}"
    return f"loss {score.loss:6.4f}{accuracy}  {score.images_per_second:7,.0f} images/s"
