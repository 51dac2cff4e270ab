"""The scores of each epoch as TensorBoard's events, in the run's folder, where tensorboard is installed."""

from __future__ import annotations

import importlib.util
import time
from typing import Any

from minorm.cli.terminal import output
from minorm.training.files.log_file import COLUMNS, Row


class Events:
    """Writes each row's numbers as loss/train, loss/val, accuracy/train, accuracy/val and learning_rate."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._writer: Any = None  # until the first epoch is done, and the run's folder there

    def add(self, row: Row) -> None:
        """One epoch."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        if self._writer is None:
            self._writer = EventFileWriter(self._folder)
        values = [
            Summary.Value(tag=_tag(name), simple_value=row[name])
            for name in COLUMNS
            if name != "epoch" and row[name] is not None
        ]
        event = Event(wall_time=time.time(), step=row["epoch"], summary=Summary(value=values))
        self._writer.add_event(event)

    def close(self) -> None:
        """Write what is still in memory."""
        if self._writer is not None:
            self._writer.close()


def events(folder: str) -> Any:
    """An Events, or None where tensorboard is not installed, or takes no such name."""
    if importlib.util.find_spec("tensorboard") is None:
        return None
    try:
        folder.encode()
    except UnicodeEncodeError:
        output.note(f"minorm train: {folder} is not UTF-8, which tensorboard needs; nothing is written for it")
        return None
    return Events(folder)


def _tag(column: str) -> str:
    part, _, what = column.partition("_")
    return column if column == "learning_rate" else f"{what}/{part}"
