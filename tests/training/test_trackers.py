"""Trackers: what wandb, MLflow and TensorBoard are given, by stand-ins and by the packages themselves."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import cli, distributed, nn
from minorm.training import (
    Callback,
    CallbackError,
    CallbackState,
    MLflowCallback,
    Run,
    Settings,
    TensorBoardCallback,
    WandbCallback,
    read_log,
    train_epoch,
)

SETTINGS = Settings(epochs=2, batch_size=10, seed=5)
TAGS = {"loss/train": "train_loss", "loss/val": "val_loss", "accuracy/train": "train_accuracy",
        "accuracy/val": "val_accuracy", "learning_rate": "learning_rate"}  # fmt: skip


def sets() -> Any:
    numbers = np.random.default_rng(0).standard_normal((20, 1, 8, 8)).astype(np.float32)
    data = mn.data.ArrayDataset(numbers, np.arange(20) % 10)
    return data, data


def numbers(row: Any) -> dict[str, float]:
    return {tag: row[column] for tag, column in TAGS.items() if row[column] is not None}


class Fails(Callback):
    def on_validation_start(self, state: CallbackState) -> None:
        raise OSError("a disk")


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **parts: Any) -> None:
    module = ModuleType(name)
    module.__dict__.update(parts)
    monkeypatch.setitem(sys.modules, name, module)


class Wandb:
    """Stands for wandb: notes what init, log and finish are given."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def init(self, **options: Any) -> Wandb:
        self.seen.append(("init", options))
        return self

    def log(self, values: dict[str, float], step: int) -> None:
        self.seen.append(("log", step, values))

    def finish(self, exit_code: int) -> None:
        self.seen.append(("finish", exit_code))


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Wandb:
    found = Wandb()
    stand_in(monkeypatch, "wandb", init=found.init)
    return found


def test_wandb_is_given_settings_and_numbers(wandb: Wandb) -> None:
    run = Run(SETTINGS, sets=sets())
    run.fit(callbacks=[WandbCallback("digits", mode="offline")])
    (_, options), *logged, end = wandb.seen
    config = options.pop("config")
    assert options == {"project": "digits", "mode": "offline"}
    assert (config["epochs"], config["seed"], config["optimizer"]) == (2, 5, "sgd")
    assert logged == [("log", row["epoch"], numbers(row)) for row in run.history]
    assert end == ("finish", 0)


def test_a_run_that_fails_ends_as_failed(wandb: Wandb) -> None:
    with pytest.raises(CallbackError, match=r"Fails\.on_validation_start"):
        Run(SETTINGS, sets=sets()).fit(callbacks=[WandbCallback(), Fails()])
    assert [entry[0] for entry in wandb.seen] == ["init", "finish"]
    assert wandb.seen[-1] == ("finish", 1)


def test_rank_0_alone_hands_on(wandb: Wandb) -> None:
    settings = Settings(epochs=1, batch_size=10, ranks=2)
    distributed.run(lambda group: Run(settings, group=group, sets=sets()).fit(callbacks=[WandbCallback()]), 2)
    assert [entry[0] for entry in wandb.seen] == ["init", "log", "finish"]


def test_a_tracker_that_cannot_begin_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)  # as where it is not installed
    with pytest.raises(CallbackError, match=r"callback MLflowCallback.on_fit_start: ModuleNotFoundError: .*mlflow"):
        Run(SETTINGS, str(tmp_path / "run"), sets=sets()).fit(callbacks=[MLflowCallback()])
    assert not (tmp_path / "run").exists()
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(CallbackError, match=r"callback TensorBoardCallback.on_fit_start: ModuleNotFoundError"):
        Run(SETTINGS, str(tmp_path / "run"), sets=sets()).fit(callbacks=[TensorBoardCallback()])
    assert not (tmp_path / "run").exists()


class MLflow:
    """Stands for MLflow's client, with one experiment that is there."""

    def __init__(self, uri: str | None, seen: list[Any]) -> None:
        self.seen = seen
        seen.append(("client", uri))

    def get_experiment_by_name(self, name: str) -> Any:
        return type("Experiment", (), {"experiment_id": "7"}) if name == "known" else None

    def create_experiment(self, name: str) -> str:
        self.seen.append(("experiment", name))
        return "8"

    def create_run(self, experiment: str) -> Any:
        self.seen.append(("run", experiment))
        return type("Run", (), {"info": type("Info", (), {"run_id": "r"})})

    def log_param(self, run: str, name: str, value: Any) -> None:
        self.seen.append(("param", run, name, value))

    def log_metric(self, run: str, name: str, value: float, step: int) -> None:
        self.seen.append(("metric", run, name, value, step))

    def set_terminated(self, run: str, status: str) -> None:
        self.seen.append(("end", run, status))


@pytest.mark.parametrize("name", ["known", "new"])
def test_mlflow_is_given_settings_and_numbers(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    seen: list[Any] = []
    stand_in(monkeypatch, "mlflow", MlflowClient=lambda uri: MLflow(uri, seen))
    run = Run(SETTINGS, sets=sets())
    run.fit(callbacks=[MLflowCallback(name, "sqlite:///there.db")])
    begun = [("run", "7")] if name == "known" else [("experiment", "new"), ("run", "8")]
    assert seen[: 1 + len(begun)] == [("client", "sqlite:///there.db"), *begun]
    assert ("param", "r", "epochs", 2) in seen
    assert sorted(entry for entry in seen if entry[0] == "metric") == sorted(
        ("metric", "r", tag, value, row["epoch"]) for row in run.history for tag, value in numbers(row).items()
    )
    assert seen[-1] == ("end", "r", "FINISHED")
    seen.clear()
    with pytest.raises(CallbackError, match="Fails"):
        Run(SETTINGS, sets=sets()).fit(callbacks=[MLflowCallback(name), Fails()])
    assert seen[-1] == ("end", "r", "FAILED")


def test_a_tracker_without_a_run_is_refused() -> None:
    model = nn.Linear(1, 1)
    optimizer = mn.optim.SGD(model.parameters(), lr=0.1)
    before = model.weight.item()
    with pytest.raises(CallbackError, match="WandbCallback cannot be used in train_epoch, because it needs a Run"):
        train_epoch(model, [(mn.ones(1, 1), mn.ones(1, 1))], nn.MSELoss(), optimizer, callbacks=[WandbCallback()])
    assert model.weight.item() == before
    with pytest.raises(CallbackError, match="folder is None, and the run has no folder"):
        Run(SETTINGS, sets=sets()).fit(callbacks=[TensorBoardCallback()])


# The packages themselves


def test_wandb_keeps_an_offline_run(tmp_path: Path) -> None:
    package = pytest.importorskip("wandb")
    kept: list[dict[str, Any]] = []

    class Summaries(Callback):
        def on_train_epoch_end(self, state: CallbackState) -> None:
            kept.append({tag: tracker.run.summary.get(tag) for tag in TAGS})  # as of the epoch before

    settings = package.Settings(silent=True, console="off")
    tracker = WandbCallback("minorm-tests", mode="offline", dir=str(tmp_path), settings=settings)
    run = Run(Settings(epochs=3, batch_size=10), sets=sets())
    run.fit(callbacks=[tracker, Summaries()])
    assert kept[1:] == [numbers(row) for row in run.history[:-1]]
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    assert file.stat().st_size > 0


@pytest.mark.slow  # MLflow makes the tables of its data base
def test_mlflow_keeps_a_run_in_a_file(tmp_path: Path) -> None:
    package = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    pytest.importorskip("alembic")
    place = f"sqlite:///{tmp_path}/mlflow.db"
    run = Run(SETTINGS, sets=sets())
    run.fit(callbacks=[MLflowCallback("digits", place)])
    client = package.MlflowClient(place)
    (found,) = client.search_runs([client.get_experiment_by_name("digits").experiment_id])
    assert found.info.status == "FINISHED"
    assert found.data.params["seed"] == "5"
    for tag, column in TAGS.items():
        history = client.get_metric_history(found.info.run_id, tag)
        assert [(entry.step, entry.value) for entry in history] == [(row["epoch"], row[column]) for row in run.history]


def test_tensorboard_is_given_every_number_of_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    class Writer:
        def __init__(self, folder: str) -> None:
            seen.append(folder)

        add_event, close = staticmethod(seen.append), staticmethod(lambda: seen.append("closed"))

    class Record:
        def __init__(self, **parts: Any) -> None:
            self.__dict__.update(parts)

    class Summary(Record):
        Value = Record

    base = "tensorboard.compat.proto"
    for name, parts in {
        "tensorboard": {}, "tensorboard.summary": {}, "tensorboard.summary.writer": {}, "tensorboard.compat": {},
        base: {}, "tensorboard.summary.writer.event_file_writer": {"EventFileWriter": Writer},
        f"{base}.event_pb2": {"Event": Record}, f"{base}.summary_pb2": {"Summary": Summary},
    }.items():  # fmt: skip
        stand_in(monkeypatch, name, **parts)
    callback = TensorBoardCallback()
    Run(SETTINGS, str(tmp_path / "first"), sets=sets()).fit(callbacks=[callback])
    assert seen[0] == str(tmp_path / "first")
    seen.clear()
    run = Run(SETTINGS, str(tmp_path / "second"), sets=sets())
    run.fit(callbacks=[callback])
    folder, *events, end = seen
    assert (folder, end) == (str(tmp_path / "second"), "closed")
    assert [event.step for event in events] == [1, 2]
    for event, row in zip(events, run.history, strict=True):
        assert {value.tag: value.simple_value for value in event.summary.value} == numbers(row)


def test_a_whole_run_is_what_tensorboard_shows(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert cli.main(["train", "--epochs", "3", "--out", str(tmp_path)]) == 0
    seen, rows = EventAccumulator(str(tmp_path)), read_log(str(tmp_path))
    seen.Reload()
    assert sorted(seen.Tags()["scalars"]) == sorted(TAGS)
    for tag, column in TAGS.items():
        assert [(event.step, event.value) for event in seen.Scalars(tag)] == [
            (row["epoch"], np.float32(row[column])) for row in rows
        ]
