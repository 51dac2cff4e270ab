"""Run: a run that stops and goes on is, to the bit, the run that never stopped."""

from __future__ import annotations

import csv
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.training import NonFiniteLoss, Run, Settings
from minorm.training.files.run_folder import LOCK
from minorm.training.run import CHECKPOINT, LOG, log

pytest.importorskip("sklearn")


class Killed(BaseException):
    """An exception that ends a run at once, as a kill does."""


def kill_after(epoch: int) -> Any:
    def after_epoch(row: dict[str, float]) -> None:
        if row["epoch"] == epoch:
            raise Killed

    return after_epoch


def kill_within(steps: int) -> Any:
    count = 0

    def after_step(_: Any) -> None:
        nonlocal count
        count += 1
        if count == steps:
            raise Killed

    return after_step


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in (CHECKPOINT, LOG)}


@pytest.mark.parametrize(("optimizer", "schedule"), [("sgd", "onecycle"), ("adamw", "cosine"), ("adam", "constant")])
def test_a_run_that_was_killed_goes_on_to_the_same_bits(tmp_path: Path, optimizer: str, schedule: str) -> None:
    settings = Settings(epochs=4, optimizer=optimizer, schedule=schedule, seed=7)
    whole = Run(settings, str(tmp_path / "whole"))
    whole.fit()

    cut = str(tmp_path / "cut")
    with pytest.raises(Killed):
        Run(settings, cut).fit(after_epoch=kill_after(2))
    mn.manual_seed(999)  # whatever the new process drew before
    mn.randn(100)
    resumed = Run.resume(cut)
    assert resumed.epoch == 2
    with pytest.raises(Killed):
        resumed.fit(kill_within(10))  # and once more, in the middle of an epoch
    resumed = Run.resume(cut)
    assert resumed.epoch == 2
    resumed.fit()

    assert files(tmp_path / "whole") == files(tmp_path / "cut")
    for name, value in whole.model.state_dict().items():
        assert value.numpy().tobytes() == resumed.model.state_dict()[name].numpy().tobytes(), name


def test_resuming_does_not_depend_on_the_number_of_threads(tmp_path: Path) -> None:
    before = mn.get_num_threads()
    try:
        for threads in (1, 2):
            mn.set_num_threads(threads)
            Run(Settings(epochs=1), str(tmp_path / str(threads))).fit()
    finally:
        mn.set_num_threads(before)
    assert files(tmp_path / "1") == files(tmp_path / "2")


def test_the_log_has_a_line_an_epoch(tmp_path: Path) -> None:
    run = Run(Settings(epochs=2), str(tmp_path))
    run.fit()
    rows = list(csv.DictReader((tmp_path / LOG).read_text().splitlines()))
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert float(rows[1]["train_loss"]) == run.history[1]["train_loss"]
    assert float(rows[1]["val_accuracy"]) > 0.8
    assert "nan" not in (tmp_path / LOG).read_text()


def test_there_is_a_checkpoint_before_the_first_epoch_ends(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        Run(Settings(epochs=2), str(tmp_path)).fit(kill_within(1))
    assert Run.resume(str(tmp_path)).epoch == 0


def test_a_finished_run_has_nothing_left_to_do(tmp_path: Path) -> None:
    Run(Settings(epochs=1), str(tmp_path)).fit()
    before = files(tmp_path)
    Run.resume(str(tmp_path)).fit()
    assert files(tmp_path) == before


def test_a_run_without_a_folder_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Run(Settings(epochs=1)).fit()
    assert list(tmp_path.iterdir()) == []


def test_a_loss_that_is_no_number_names_the_epoch_and_keeps_the_checkpoint(tmp_path: Path) -> None:
    run = Run(Settings(epochs=3, schedule="constant"), str(tmp_path))

    def poison(row: dict[str, float]) -> None:
        next(run.model.parameters()).array[:] = np.inf

    with pytest.raises(NonFiniteLoss, match="epoch 2: the loss is nan"), np.errstate(invalid="ignore"):
        run.fit(after_epoch=poison)
    assert Run.resume(str(tmp_path)).epoch == 1


def test_no_run_and_too_large_batches_are_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Run.resume(str(tmp_path / "nothing"))
    mn.checkpoint.save_training(tmp_path / CHECKPOINT, epoch=1)
    with pytest.raises(ValueError, match="was not written by a Run; it holds epoch"):
        Run.resume(str(tmp_path))
    with pytest.raises(ValueError, match="batch_size is 5000; expected at most the 1438 training images"):
        Run(Settings(batch_size=5000))


def test_a_log_that_was_lost_comes_back_from_the_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        Run(Settings(epochs=2), str(tmp_path / "a")).fit(after_epoch=kill_after(1))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    (tmp_path / "b" / LOG).unlink()
    for name in ("a", "b"):
        Run.resume(str(tmp_path / name)).fit()
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_a_folder_in_which_another_run_trains_is_left_alone(tmp_path: Path) -> None:
    run, out = Run(Settings(epochs=1), str(tmp_path)), str(tmp_path)
    ended: list[BaseException] = []

    def other() -> None:
        try:
            Run(Settings(epochs=1, seed=1), out).fit()
        except BlockingIOError as error:
            ended.append(error)

    def after_step(_: Any) -> None:
        if not ended:
            before = files(tmp_path)
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            assert files(tmp_path) == before

    run.fit(after_step)
    assert f"another run is training in {out};" in str(ended[0])
    assert not (tmp_path / LOCK).exists()


def test_an_accuracy_that_is_not_there_is_an_empty_field() -> None:
    row = {"epoch": 1, "learning_rate": 0.1, "train_loss": 0.5, "train_accuracy": None, "val_loss": 0.25}
    lines = log([{**row, "val_accuracy": None}]).splitlines()
    assert lines[1] == "1,0.1,0.5,,0.25,"
    assert [len(line.split(",")) for line in lines] == [6, 6]
