"""A run goes on with the images that it began with; others need a word, and get a schedule for their number."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minorm.checkpoint import load_training, save_training
from minorm.data import ArrayDataset
from minorm.training import Run, Settings
from minorm.training.model.own_code import Code
from minorm.training.run import BEST, CHECKPOINT, LOG

SETTINGS = Settings(epochs=4, batch_size=10, seed=3)


def sets(count: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return tuple(
        ArrayDataset(rng.standard_normal((n, 1, 8, 8)).astype(np.float32), np.arange(n) % 10) for n in (count, 20)
    )


class Killed(BaseException):
    """An exception that ends a run at once, as a kill does."""


def cut(out: Path, settings: Settings = SETTINGS) -> Path:
    """Start a run of 60 images and kill it after epoch 2."""

    def after_epoch(row: Any) -> None:
        if row["epoch"] == 2:
            raise Killed

    with pytest.raises(Killed):
        Run(settings, str(out), sets=sets(60)).fit(after_epoch=after_epoch)
    return out


CHANGED: dict[str, Any] = {
    "loss": "focal", "vflip": 0.5, "rotate": 20.0, "perspective": 0.4, "blur": 1.0, "rand_augment": "2,9",
    "trivial_augment": True,
}  # fmt: skip


@pytest.mark.parametrize("names", [["loss", "vflip", "rotate"], ["perspective", "blur"], ["rand_augment"],
                                   ["trivial_augment"]])  # fmt: skip
def test_a_run_with_these_settings_goes_on_to_the_same_bits(tmp_path: Path, names: list[str]) -> None:
    settings = replace(SETTINGS, epochs=3, **{name: CHANGED[name] for name in names})
    whole = Run(settings, str(tmp_path / "whole"), sets=sets(60))
    whole.fit()
    resumed = Run.resume(str(cut(tmp_path / "cut", settings)), sets=sets(60))
    assert resumed.settings == settings
    resumed.fit()
    assert all((tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes()
               for name in (CHECKPOINT, BEST, LOG))  # fmt: skip
    plain = Run(replace(SETTINGS, epochs=3), sets=sets(60))
    plain.fit()
    assert plain.history != whole.history


def test_other_images_need_a_word(tmp_path: Path) -> None:
    out = str(cut(tmp_path / "run"))
    for given, said in (
        (sets(60, 1), "some of the 60 training images have changed; some of the 20 validation images have changed"),
        (sets(90), "60 training images before, 90 now; some of the 20 validation images have changed"),
        (sets(30), "60 training images before, 30 now"),
    ):
        with pytest.raises(
            ValueError, match=f"the run of .* had other images: {said}.*--other-images.*other_images=True"
        ):
            Run.resume(out, sets=given)
    assert Run.resume(out, sets=sets(60)).epoch == 2


@pytest.mark.parametrize("count", [40, 60, 90])
@pytest.mark.parametrize("changed", [{}, {"schedule": "cosine", "warmup_epochs": 1}, {"schedule": "constant"}])
def test_with_the_word_the_schedule_is_that_of_their_number(tmp_path: Path, count: int, changed: Any) -> None:
    """The rates of the epochs that are left are those of a run that had these images from the start."""
    settings = Settings(epochs=4, batch_size=10, seed=3, **changed)
    out = cut(tmp_path / "cut", settings)
    run = Run.resume(str(out), sets=sets(count, 1), other_images=True)
    run.fit()
    whole = Run(settings, sets=sets(count, 1))
    whole.fit()
    rates = [[row["learning_rate"] for row in each.history] for each in (run, whole)]
    assert rates[0][2:] == rates[1][2:]
    assert [row["epoch"] for row in run.history] == [1, 2, 3, 4]
    assert load_training(out / CHECKPOINT)["images"]["train"]["number"] == count
    assert Run.resume(str(out), sets=sets(count, 1)).finished, "these are the images that it knows now"


def test_a_checkpoint_of_before_goes_on_without_a_word_to_the_same_bytes(tmp_path: Path) -> None:
    Run(SETTINGS, str(tmp_path / "whole"), sets=sets(60)).fit()
    out = cut(tmp_path / "old")
    saved = load_training(out / CHECKPOINT)
    del saved["images"]
    save_training(out / CHECKPOINT, **saved)
    Run.resume(str(out), sets=sets(60)).fit()
    for name in (CHECKPOINT, BEST, LOG):
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_images_of_another_form_do_not_fit(tmp_path: Path) -> None:
    out, (train, test) = str(cut(tmp_path / "run")), sets(60)
    wide = tuple(ArrayDataset(np.repeat(part.arrays[0], 3, 1), part.arrays[1]) for part in (train, test))
    with pytest.raises(
        ValueError, match="10 classes and 1 x 8 x 8 pixels, but these images have 10 classes and 3 x 8 x 8 pixels"
    ):
        Run.resume(out, sets=wide, other_images=True)


@pytest.mark.parametrize("count", [40, 90])
def test_a_checkpoint_of_before_knows_the_number_of_its_images(tmp_path: Path, count: int) -> None:
    out = cut(tmp_path / "old")
    saved = load_training(out / CHECKPOINT)
    del saved["images"]
    save_training(out / CHECKPOINT, **saved)
    with pytest.raises(ValueError, match=f"60 training images before, {count} now. To continue"):
        Run.resume(str(out), sets=sets(count))
    run = Run.resume(str(out), sets=sets(count), other_images=True)
    run.fit()
    assert run.finished


def test_what_the_user_agreed_to_is_what_runs(tmp_path: Path) -> None:
    """A checkpoint and a file that change after the question do not run."""
    mark, file = tmp_path / "ran", tmp_path / "mine.py"
    code = "from minorm import nn\ndef build(c, s, k): return nn.Sequential(nn.Flatten(), nn.Linear(c * s * s, k))\n"
    file.write_text(code)
    out = cut(tmp_path / "run", replace(SETTINGS, model=f"{file}:build"))
    agreed = Code.read(f"{out}/mine.py:build", copied=True)
    (out / "mine.py").write_text(f"open({str(mark)!r}, 'w')\n{code}")
    with pytest.raises(ValueError, match=r"has a mine\.py that differs from .*run/mine\.py"):
        Run.resume(str(out), sets=sets(60), code=agreed)
    saved = load_training(out / CHECKPOINT)
    changed = Code.read(f"{out}/mine.py:build").sha256
    save_training(out / CHECKPOINT, **{**saved, "model_facts": {**saved["model_facts"], "sha256": changed}})
    with pytest.raises(ValueError, match="is no longer the file"):
        Run.resume(str(out), sets=sets(60), code=agreed)
    assert not mark.exists()


def followed(run: Run) -> list[Any]:
    """Train, and note rate and momentum of each group after each step."""
    seen: list[Any] = []

    def after_step(_: Any) -> None:
        seen.append([(g["lr"], g.get("momentum"), g.get("betas")) for g in run.optimizer.param_groups])

    run.fit(after_step)
    return seen


@pytest.mark.parametrize("done", [2, 4])
@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"warmup_epochs": 1},
        {"schedule": "cosine"},
        {"schedule": "step", "optimizer": "adam"},
        {"schedule": "constant"},
    ],
)
def test_more_epochs_are_those_of_a_run_of_so_many(tmp_path: Path, changed: Any, done: int) -> None:
    """A run of 4 epochs, cut short or finished, goes on to 7: the rates and momenta are those of 7 epochs."""
    settings = Settings(epochs=4, batch_size=10, seed=3, **changed)
    if done == 2:
        cut(tmp_path / "run", settings)
    else:
        Run(settings, str(tmp_path / "run"), sets=sets(60)).fit()
    run = Run.resume(str(tmp_path / "run"), sets=sets(60), epochs=7)
    whole = Run(replace(settings, epochs=7), sets=sets(60))
    assert followed(run) == followed(whole)[done * 6 :]
    assert (run.epoch, run.settings.epochs, len(run.history)) == (7, 7, 7)
    assert [row["learning_rate"] for row in run.history[done:]] == [
        row["learning_rate"] for row in whole.history[done:]
    ]
    assert load_training(tmp_path / "run" / CHECKPOINT)["settings"]["epochs"] == 7


def test_the_first_rate_after_going_on_is_pytorchs(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    Run(SETTINGS, str(tmp_path), sets=sets(60)).fit()
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=6 * 10, pct_start=0.25)
    for _ in range(6 * 4):
        optimizer.step()
        schedule.step()
    run = Run.resume(str(tmp_path), sets=sets(60), epochs=10)
    group = run.optimizer.param_groups[0]
    assert group["lr"] == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12)
    assert group["momentum"] == pytest.approx(optimizer.param_groups[0]["momentum"], rel=1e-12)


def test_a_run_that_goes_on_and_is_killed_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    for name in ("whole", "killed"):
        Run(SETTINGS, str(tmp_path / name), sets=sets(60)).fit()
    Run.resume(str(tmp_path / "whole"), sets=sets(60), epochs=7).fit()

    def kill(row: Any) -> None:
        if row["epoch"] == 5:
            raise Killed

    with pytest.raises(Killed):
        Run.resume(str(tmp_path / "killed"), sets=sets(60), epochs=7).fit(after_epoch=kill)
    again = Run.resume(str(tmp_path / "killed"), sets=sets(60))
    assert (again.epoch, again.settings.epochs) == (5, 7)
    again.fit()
    for name in (CHECKPOINT, BEST, LOG):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_the_same_epochs_change_nothing(tmp_path: Path) -> None:
    Run(SETTINGS, str(tmp_path / "whole"), sets=sets(60)).fit()
    Run.resume(str(cut(tmp_path / "cut")), sets=sets(60), epochs=4).fit()
    for name in (CHECKPOINT, BEST, LOG):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_epochs_that_are_done_are_refused(tmp_path: Path) -> None:
    Run(SETTINGS, str(tmp_path), sets=sets(60)).fit()
    before = (tmp_path / CHECKPOINT).read_bytes()
    for epochs, said in (
        (4, "epochs is 4; expected more than 4, the number of epochs that the run of .* has finished"),
        (3, "epochs is 3; expected more than 4,"),
        (0, "epochs is 0; expected at least 1"),
        ("9", "epochs is '9'; expected a whole number"),
    ):
        with pytest.raises(ValueError, match=said):
            Run.resume(str(tmp_path), sets=sets(60), epochs=epochs)  # type: ignore[arg-type]
    assert (tmp_path / CHECKPOINT).read_bytes() == before


def test_patience_starts_again_where_a_run_goes_on(tmp_path: Path) -> None:
    """It ended after 2 epochs without a better score; with more epochs it has 2 more, even if it is killed between."""
    settings = Settings(epochs=30, batch_size=10, early_stopping=2, lr=1e-12, schedule="constant")
    run = Run(settings, str(tmp_path), sets=sets(60))
    run.fit()
    ended, best = run.epoch, run.best_epoch
    assert ended == best + 2 < 29

    def kill(_: Any) -> None:
        raise Killed

    with pytest.raises(Killed):
        Run.resume(str(tmp_path), sets=sets(60), epochs=30).fit(after_epoch=kill)
    again = Run.resume(str(tmp_path), sets=sets(60))
    assert (again.epoch, again.patience_from, again.finished) == (ended + 1, ended, False)
    again.fit()
    assert again.epoch == max(again.best_epoch, ended) + 2
    parts = load_training(tmp_path / CHECKPOINT)
    for wrong in (-1, 99, "1", True):
        save_training(tmp_path / CHECKPOINT, **{**parts, "patience_from": wrong})
        with pytest.raises(ValueError, match=r"its patience_from is .*; expected an epoch of at most"):
            Run.resume(str(tmp_path), sets=sets(60))
