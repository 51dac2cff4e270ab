"""A run whose body is frozen for some epochs: what moves, what does not, and that it goes on to the same bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import models
from minorm.data import ArrayDataset
from minorm.distributed import simulate
from minorm.quantization import QATModel
from minorm.training import Run, Settings

SETTINGS = Settings(batch_size=10, epochs=4, freeze=2, layer_decay=0.8)
HEAD = {"12.weight", "12.bias"}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "ema": {"ema": 0.9},
    "qat": {"qat": "uint8"},
    "bfloat16": {"dtype": "bfloat16"},
    "warm": {"optimizer": "adam", "schedule": "cosine", "warmup_epochs": 1},
    "constant": {"schedule": "constant", "accumulate": 2},
    "all": {"freeze": "all"},
}


class Stopped(Exception):
    pass


def sets() -> Any:
    rng = np.random.default_rng(0)
    return tuple(ArrayDataset(rng.random((n, 1, 8, 8), np.float32), np.arange(n) % 10) for n in (40, 20))


def state(run: Run) -> dict[str, Any]:
    model = run.model.model if isinstance(run.model, QATModel) else run.model
    return {name: value.numpy().copy() for name, value in model.state_dict().items()}


def changed(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    return {name for name in before if not np.array_equal(before[name], after[name])}


@pytest.fixture(scope="module", params=["file", "graph"])
def start(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str | None]:
    """The model and the file of a run that begins with weights."""
    folder = tmp_path_factory.mktemp("start")
    mn.manual_seed(1)
    network = models.digits_cnn(classes=6)
    if request.param == "graph":
        onnx = pytest.importorskip("minorm.onnx")
        onnx.export(network, mn.zeros(1, 1, 8, 8), folder / "net.onnx")
        return str(folder / "net.onnx"), None
    mn.save(network.state_dict(), folder / "net.safetensors")
    return "digits", str(folder / "net.safetensors")


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_head_alone_moves_until_the_thaw_and_a_run_goes_on_in_either_part(
    kind: str, start: tuple[str, str | None], tmp_path: Path
) -> None:
    settings = replace(SETTINGS, model=start[0], **{"lr": 0.0, **KINDS[kind]})
    whole, moved = Run(settings, sets=sets(), init=start[1]), list[set[str]]()
    before = state(whole)
    whole.fit(after_epoch=lambda row: moved.append(changed(before, state(whole))))
    assert moved[0] == moved[1] == HEAD
    assert moved[3] == (HEAD if settings.freeze == "all" else set(before))
    for stop in (1, 2, 3) if kind == "plain" else (2, 3):
        out = str(tmp_path / str(stop))

        def halt(row: Any, stop: int = stop) -> None:
            if row["epoch"] == stop:
                raise Stopped

        with pytest.raises(Stopped):
            Run(settings, out, sets=sets(), init=start[1]).fit(after_epoch=halt)
        again = Run.resume(out, sets=sets())
        again.fit()
        assert not changed(state(whole), state(again))
        assert again.history == whole.history
        assert again.initial == whole.initial


def test_two_ranks_train_the_head_and_then_all_of_one_model(start: tuple[str, str | None]) -> None:
    settings = replace(SETTINGS, model=start[0], epochs=2, freeze=1)

    def program(group: Any) -> Any:
        run, moved = Run(replace(settings, ranks=2), group=group, sets=sets(), init=start[1]), list[set[str]]()
        before = state(run)
        run.fit(after_epoch=lambda row: moved.append(changed(before, state(run))))
        return moved, state(run)

    (moved, mine), (_, other) = simulate(2, program)
    assert moved == [HEAD, set(mine)]
    assert not changed(mine, other)


def test_rates_fall_with_the_distance_from_the_head() -> None:
    run = Run(replace(SETTINGS, schedule="constant", freeze=0, layer_decay=0.5), sets=sets())
    rates = {id(p): group["lr"] for group in run.optimizer.param_groups for p in group["params"]}
    decays = {id(p): group["weight_decay"] for group in run.optimizer.param_groups for p in group["params"]}
    for depth, names in enumerate((("12",), ("7", "8"), ("3", "4"), ("0", "1"))):
        for name in names:
            for p in run.model.get_submodule(name).parameters():
                assert rates[id(p)] == 0.05 * 0.5**depth
                assert decays[id(p)] == (5e-4 if p.ndim > 1 else 0)
    assert run.rates == [0.05, 0.025, 0.0125, 0.00625]
    assert len(rates) == len(list(run.model.parameters()))


def test_patience_begins_at_the_thaw() -> None:
    run = Run(replace(SETTINGS, epochs=9, freeze=5, early_stopping=2, lr=1e-9), sets=sets())
    run.fit()
    assert run.epoch == max(7, run.best_epoch + 2), "nothing gets better"


def test_other_steps_are_other_cuda_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    run, made = Run(replace(SETTINGS, epochs=3, freeze=1), sets=sets()), list[int]()
    monkeypatch.setattr(run, "_graphs", lambda: made.append(run.epoch))
    run.fit()
    assert made == [1]
