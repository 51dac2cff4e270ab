"""The bar shows the right numbers, and draws seldom."""

from __future__ import annotations

import io

import pytest

from minorm.training import Score

rich_console = pytest.importorskip("rich.console")
progress = pytest.importorskip("minorm.progress")


def score(images: int) -> Score:
    result = Score()
    result.images, result.seconds, result._sum_of_losses = images, 0.5, images * 0.25
    result.correct, result.counted = images // 2, images
    return result


def test_the_finished_bar_shows_steps_loss_accuracy_and_speed() -> None:
    console = rich_console.Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    with progress.TrainingBar(console, "seed 7", steps=30, done=10) as bar:
        for step in range(20):
            bar.after_step(score(64 * (step + 1)))
    last = console.file.getvalue().splitlines()[-2]
    assert "seed 7" in last
    assert "30/30" in last
    assert "loss 0.2500  accuracy  50.00%    2,560 images/s" in last


def test_a_terminal_of_80_columns_shows_all_of_it() -> None:
    console = rich_console.Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    with progress.TrainingBar(console, "training", steps=1100) as bar:
        bar.after_step(score(64))
    last = console.file.getvalue().splitlines()[-2]
    assert "1/1100 loss 0.2500  accuracy  50.00%      128 images/s" in last
    assert "…" not in last


def test_without_classes_no_accuracy_is_shown() -> None:
    without = score(64)
    without.counted = 0
    assert progress.describe(without) == "loss 0.2500      128 images/s"


def test_it_draws_ten_times_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    console = rich_console.Console(file=io.StringIO(), width=100, force_terminal=True)
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    bar = progress.TrainingBar(console, "x", steps=1000)
    drawn = []
    monkeypatch.setattr(bar._progress, "refresh", lambda: drawn.append(now[0]))
    for _ in range(1000):
        now[0] += 0.001
        bar.after_step(score(1))
    assert 9 <= len(drawn) <= 10
