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
from minorm.training.own_code import Code
from minorm.training.run import BEST, CHECKPOINT, LOG

SETTINGS = Settings(epochs=4, batch_size=10, seed=3)


def sets(count: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return tuple(
        ArrayDataset(rng.standard_normal((n, 1, 8, 8)).astype(np.float32), np.arange(n) % 10) for n in (count, 20)
    )


class Killed(BaseException):
    """What ends a run without asking."""


def cut(out: Path, settings: Settings = SETTINGS) -> Path:
    """A run of 60 images that was killed after epoch 2."""

    def after_epoch(row: Any) -> None:
        if row["epoch"] == 2:
            raise Killed

    with pytest.raises(Killed):
        Run(settings, str(out), sets=sets(60)).fit(after_epoch=after_epoch)
    return out


def test_other_images_need_a_word(tmp_path: Path) -> None:
    out = str(cut(tmp_path / "run"))
    for given, said in (
        (sets(60, 1), "some of the 60 training images are others; some of the 20 validation images are others"),
        (sets(90), "60 training images then, 90 now; some of the 20 validation images are others"),
        (sets(30), "60 training images then, 30 now"),
    ):
        with pytest.raises(ValueError, match=f"is of a run on other images: {said}.*--other-images.*other_images=True"):
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
    with pytest.raises(ValueError, match="10 classes and 1 x 8 x 8 pixels; these are 10 classes and 3 x 8 x 8 pixels"):
        Run.resume(out, sets=wide, other_images=True)


@pytest.mark.parametrize("count", [40, 90])
def test_a_checkpoint_of_before_knows_the_number_of_its_images(tmp_path: Path, count: int) -> None:
    out = cut(tmp_path / "old")
    saved = load_training(out / CHECKPOINT)
    del saved["images"]
    save_training(out / CHECKPOINT, **saved)
    with pytest.raises(ValueError, match=f"60 training images then, {count} now. To go on"):
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
    with pytest.raises(ValueError, match=r"holds another mine\.py than .*run/mine\.py"):
        Run.resume(str(out), sets=sets(60), code=agreed)
    saved = load_training(out / CHECKPOINT)
    changed = Code.read(f"{out}/mine.py:build").sha256
    save_training(out / CHECKPOINT, **{**saved, "model_facts": {**saved["model_facts"], "sha256": changed}})
    with pytest.raises(ValueError, match="is not the file any more"):
        Run.resume(str(out), sets=sets(60), code=agreed)
    assert not mark.exists()
