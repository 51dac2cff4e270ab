"""A run on several ranks: the same files on any number of processes, one writer, and going on with another number."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import models, nn
from minorm.checkpoint import load_training
from minorm.distributed import DistributedDataParallel, Group, RankError, simulate
from minorm.training import NonFiniteLoss, Run, Settings
from minorm.training.run import BEST, CHECKPOINT, LOG
from tests.distributed.engines import on_processes
from tests.distributed.programs import images

SETTINGS = Settings(epochs=2, batch_size=32, seed=3, ranks=4)


class Killed(BaseException):
    """An exception that ends a run at once, as a kill does."""


def fit(out: Path, group: Group | None = None, settings: Settings = SETTINGS, kill: int = 99) -> list[Any]:
    def after_epoch(row: dict[str, Any]) -> None:
        if row["epoch"] == kill and (group is None or group.rank == 1):
            raise Killed

    run = Run(settings, str(out), group=group, sets=(images(200), images(50, 1)))
    run.fit(after_epoch=after_epoch)
    return run.history


def resume(out: Path, group: Group) -> list[Any]:
    run = Run.resume(str(out), group=group, sets=(images(200), images(50, 1)))
    run.fit()
    return run.history


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_files_are_the_same_on_any_number_of_processes(tmp_path: Path) -> None:
    expected = simulate(4, lambda group: fit(tmp_path / "1", group))
    assert all(history == expected[0] for history in expected)
    for processes in (2, 3, 4):
        assert on_processes(processes, 4, lambda group: fit(tmp_path / str(processes), group)) == expected  # noqa: B023
        assert files(tmp_path / str(processes)) == files(tmp_path / "1")
    assert set(files(tmp_path / "1")) == {BEST, CHECKPOINT, LOG}
    assert len(load_training(tmp_path / "1" / CHECKPOINT)["random"]["ranks"]) == 4


def test_averaged_weights_are_those_of_all_ranks(tmp_path: Path) -> None:
    settings = replace(SETTINGS, ema=0.9, ranks=2)
    expected = simulate(2, lambda group: fit(tmp_path / "1", group, settings))
    assert expected[0] == expected[1]
    assert on_processes(2, 2, lambda group: fit(tmp_path / "2", group, settings)) == expected
    assert files(tmp_path / "2") == files(tmp_path / "1")


def test_a_run_that_was_killed_goes_on_with_another_number_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dropout: a random stream that is not put back, of any rank, shows."""

    def network(*args: Any, **options: Any) -> nn.Sequential:
        layers = models.digits_cnn(*args, **options)
        return nn.Sequential(*layers[:-1], nn.Dropout(0.3), layers[-1])

    monkeypatch.setitem(models.BY_NAME, "digits", network)  # type: ignore[index]
    simulate(4, lambda group: fit(tmp_path / "whole", group))
    with pytest.raises(Killed):
        on_processes(4, 4, lambda group: fit(tmp_path / "cut", group, kill=1))
    mn.manual_seed(999)  # whatever the new process drew before
    on_processes(2, 4, lambda group: resume(tmp_path / "cut", group))
    assert files(tmp_path / "cut") == files(tmp_path / "whole")


def test_ranks_learn_what_one_rank_learns(tmp_path: Path) -> None:
    one = fit(tmp_path / "one", settings=Settings(epochs=1, batch_size=32, seed=3))
    found = simulate(4, lambda group: fit(tmp_path / "four", group, Settings(epochs=1, batch_size=32, seed=3, ranks=4)))
    for name in ("train_loss", "train_accuracy", "val_loss", "val_accuracy"):
        assert found[0][0][name] == pytest.approx(one[0][name], rel=1e-4), name


def test_accumulated_steps_of_ranks_are_those_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four batches a step, of which an epoch has six: running statistics move and gradients travel twice an epoch."""
    settings = Settings(epochs=1, batch_size=32, seed=3, accumulate=4, clip_grad=1.0)
    sent: list[int] = []
    reduce = DistributedDataParallel._reduce

    def counted(model: DistributedDataParallel, parameters: list[Any]) -> None:
        sent.append(model.group.rank)
        reduce(model, parameters)

    one = fit(tmp_path / "one", settings=settings)
    monkeypatch.setattr(DistributedDataParallel, "_reduce", counted)
    found = simulate(3, lambda group: fit(tmp_path / "3", group, replace(settings, ranks=3)))
    assert sorted(sent) == [0, 0, 1, 1, 2, 2]
    assert found[0] == found[1] == found[2]
    for name in ("train_loss", "train_accuracy", "val_loss", "val_accuracy"):
        assert found[0][0][name] == pytest.approx(one[0][name], rel=1e-4), name
    mine, theirs = (load_training(tmp_path / name / CHECKPOINT)["model"] for name in ("one", "3"))
    for name, value in mine.items():
        if name.endswith("num_batches_tracked"):
            assert value.item() == theirs[name].item() == 2
        else:
            np.testing.assert_allclose(value.numpy(), theirs[name].numpy(), rtol=1e-3, atol=1e-5, err_msg=name)
    assert on_processes(2, 3, lambda group: fit(tmp_path / "2", group, replace(settings, ranks=3))) == found
    assert files(tmp_path / "2") == files(tmp_path / "3")


def test_one_rank_in_a_group_writes_what_no_group_writes(tmp_path: Path) -> None:
    settings = Settings(epochs=1, batch_size=32, seed=3)
    fit(tmp_path / "none", settings=settings)
    simulate(1, lambda group: fit(tmp_path / "one", group, settings))
    assert files(tmp_path / "none") == files(tmp_path / "one")


def test_the_number_of_ranks_is_the_groups(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Run: ranks is 4; expected the size of the group, 1"):
        fit(tmp_path)
    simulate(4, lambda group: fit(tmp_path, group))
    with pytest.raises(ValueError, match="Run: ranks is 4; expected the size of the group, 2"):
        simulate(2, lambda group: resume(tmp_path, group))
    with pytest.raises(ValueError, match="ranks is 0; expected at least 1"):
        Settings(ranks=0)


def test_a_loss_that_is_no_number_names_the_rank_and_the_reason(tmp_path: Path) -> None:
    train = images(200)
    train.arrays[0][7] = np.nan

    def program(group: Group) -> None:
        Run(SETTINGS, str(tmp_path), group=group, sets=(train, images(50, 1))).fit()

    said = r"epoch 2: rank \d of 4: the loss is nan; the inputs of this batch hold 64 NaN.*; check the data"
    with pytest.raises(NonFiniteLoss, match=said) as caught, np.errstate(all="ignore"):
        simulate(4, program)
    assert not hasattr(caught.value, "__notes__")  # it names the rank already
    assert load_training(tmp_path / CHECKPOINT)["epoch"] == 1


def test_if_rank_0_cannot_write_all_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []

    def program(group: Group) -> None:
        try:
            fit(tmp_path / "file" / "run", group)
        except (OSError, RankError) as error:
            ended.append((group.rank, type(error).__name__, "file" in str(error)))

    (tmp_path / "file").write_text("in the way")
    simulate(4, program)
    assert sorted(ended) == [(0, "NotADirectoryError", True), *((rank, "RankError", True) for rank in (1, 2, 3))]


def test_ranks_that_read_different_files_are_found(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 2)):
        settings = Settings(epochs=1, batch_size=32, seed=seed, ranks=2)
        simulate(2, lambda group: fit(tmp_path / name, group, settings))  # noqa: B023
    with pytest.raises(
        RankError,
        match=r"rank 1 and rank 0 read different contents of .*\.safetensors; expected one "
        r"file",
    ):
        simulate(2, lambda group: resume(tmp_path / "ab"[group.rank], group))


def test_a_checkpoint_of_before_there_were_ranks_resumes(tmp_path: Path) -> None:
    from minorm.checkpoint import save_training

    settings = Settings(epochs=2, batch_size=32, seed=3)
    fit(tmp_path / "whole", settings=settings)
    with pytest.raises(Killed):
        fit(tmp_path / "old", settings=settings, kill=1)
    saved = load_training(tmp_path / "old" / CHECKPOINT)
    assert saved["settings"].pop("ranks") == 1
    save_training(tmp_path / "old" / CHECKPOINT, **saved)
    run = Run.resume(str(tmp_path / "old"), sets=(images(200), images(50, 1)))
    run.fit()
    assert files(tmp_path / "old") == files(tmp_path / "whole")
