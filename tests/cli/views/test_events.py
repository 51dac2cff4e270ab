"""TensorBoard's events: what its own reader finds in the run's folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minorm import cli
from minorm.cli.views import events
from minorm.training import read_log


class Record:
    """Stands for the parts of tensorboard that are used, where it is not installed."""

    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)


def test_every_number_of_a_row_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    class Writer:
        def __init__(self, folder: str) -> None:
            seen.append(folder)

        add_event, close = staticmethod(seen.append), staticmethod(lambda: seen.append("closed"))

    class Summary(Record):
        Value = Record

    base = "tensorboard.compat.proto"
    for name, parts in {
        "tensorboard": {}, "tensorboard.summary": {}, "tensorboard.summary.writer": {}, "tensorboard.compat": {},
        base: {}, "tensorboard.summary.writer.event_file_writer": {"EventFileWriter": Writer},
        f"{base}.event_pb2": {"Event": Record}, f"{base}.summary_pb2": {"Summary": Summary},
    }.items():  # fmt: skip
        monkeypatch.setitem(sys.modules, name, Record(**parts))  # type: ignore[arg-type]
    writer = events.Events(str(tmp_path))
    writer.add({"epoch": 3, "learning_rate": 0.1, "train_loss": 1.0, "train_accuracy": None, "val_loss": 2.0,
                "val_accuracy": 0.5})  # fmt: skip
    writer.close()
    folder, event, end = seen
    assert (folder, event.step, end) == (str(tmp_path), 3, "closed")
    assert {value.tag: value.simple_value for value in event.summary.value} == {
        "learning_rate": 0.1,
        "loss/train": 1.0,
        "loss/val": 2.0,
        "accuracy/val": 0.5,
    }


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    writer = events.events(str(tmp_path))
    writer.add({"epoch": 1, "learning_rate": 0.1, "train_loss": 1.0, "train_accuracy": 0.25, "val_loss": 2.0,
                "val_accuracy": 0.5})  # fmt: skip
    writer.close()
    (file,) = tmp_path.iterdir()
    found = {value.tag: event.step for event in EventFileLoader(str(file)).Load() for value in event.summary.value}
    assert found == dict.fromkeys(("learning_rate", "loss/train", "loss/val", "accuracy/train", "accuracy/val"), 1)


def test_a_whole_run_is_what_tensorboard_shows(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert cli.main(["train", "--epochs", "3", "--out", str(tmp_path)]) == 0
    seen, rows = EventAccumulator(str(tmp_path)), read_log(str(tmp_path))
    seen.Reload()
    scores = [f"{what}/{part}" for what in ("loss", "accuracy") for part in ("train", "val")]
    assert sorted(seen.Tags()["scalars"]) == sorted([*scores, "learning_rate"])
    for tag, column in (("loss/train", "train_loss"), ("accuracy/val", "val_accuracy"), ("learning_rate",) * 2):
        assert [(event.step, event.value) for event in seen.Scalars(tag)] == [
            (row["epoch"], np.float32(row[column])) for row in rows
        ]


def test_before_the_first_epoch_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: "installed")
    (tmp_path / "file").write_bytes(b"")
    events.events(str(tmp_path / "file")).close()  # that no folder can be made there, the run says
    events.events(str(tmp_path / "run")).close()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_tensorboard_cannot_name_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(events.importlib.util, "find_spec", lambda _: object())
    assert events.events(f"{tmp_path}/run\udcfc") is None
    assert r"run\xfc is not UTF-8, which tensorboard needs" in capsys.readouterr().err
    assert events.events(f"{tmp_path}/ü") is not None
