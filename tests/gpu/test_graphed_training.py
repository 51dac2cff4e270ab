"""Runs on a GPU, whose steps are CUDA graphs: the double replays them, and every bit is that of eager steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cupy_graphs
import numpy as np
import pytest

import minorm as mn
from minorm import nn
from minorm.checkpoint import load_training
from minorm.data import ArrayDataset
from minorm.training import NonFiniteLoss, Run, Settings, train_epoch
from minorm.training.run import BEST, CHECKPOINT, LOG
from minorm.training.steps.graphed import GraphedLoop
from minorm.training.steps.loop import train_by

MODEL = """
from minorm import nn

def build(channels, size, classes):
    return nn.Sequential(nn.Conv2d(channels, 4, 3, stride=2, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
                         nn.Dropout(0.2), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, classes))
"""
WAYS: dict[str, dict[str, Any]] = {
    "sgd": {},
    "adamw, everything": {
        "optimizer": "adamw", "ema": 0.9, "clip_grad": 0.5, "class_weights": "balanced", "schedule": "cosine",
        "warmup_epochs": 1, "hflip": 0.5, "crop_padding": 1,
    },
    "adam, bfloat16, mixed": {"optimizer": "adam", "dtype": "bfloat16", "mixup": 0.2},
}  # fmt: skip


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch, cuda: Any) -> list[Any]:
    """Return the list of replayed graphs, in order."""
    found: list[Any] = []
    launch = cupy_graphs.Graph.launch

    def counted(graph: Any, stream: Any = None) -> None:
        found.append(graph)
        launch(graph, stream)

    monkeypatch.setattr(cupy_graphs.Graph, "launch", counted)
    return found


def images(count: int) -> ArrayDataset:
    rng = np.random.default_rng(count)
    return ArrayDataset(rng.standard_normal((count, 1, 8, 8)).astype(np.float32), rng.integers(0, 3, count))


def run(out: Path, graph: bool, device: str = "cuda:1", **settings: Any) -> Run:
    model = out.parent / "model.py"
    model.write_text(MODEL)
    # 27 images in sixes: four steps an epoch, and a last batch of three
    chosen = Settings(epochs=2, batch_size=6, model=f"{model}:build", **settings)
    return Run(chosen, str(out), device=device, sets=(images(27), images(9)), graph=graph)


@pytest.mark.parametrize("way", WAYS)
def test_a_run_has_the_bits_of_one_without_graphs(way: str, tmp_path: Path, replays: list[Any]) -> None:
    for name, graph in (("eager", False), ("graphed", True)):
        run(tmp_path / name, graph, **WAYS[way]).fit()
        assert bool(replays) is graph
    steps = len(replays) / 2  # forward, and what follows it
    assert 2 <= steps < 2 * 5
    left, right = (tmp_path / name for name in ("eager", "graphed"))
    assert (left / LOG).read_text() == (right / LOG).read_text()
    for file in (CHECKPOINT, BEST):
        assert (left / file).read_bytes() == (right / file).read_bytes(), file
    assert load_training(str(left / CHECKPOINT))["epoch"] == 2


def test_a_run_goes_on_with_graphs_where_it_was_stopped(tmp_path: Path, replays: list[Any]) -> None:
    run(tmp_path / "whole", graph=False, ema=0.9).fit()

    def stop(row: Any) -> None:
        raise KeyboardInterrupt

    stopped = run(tmp_path / "stopped", graph=True, ema=0.9)
    with pytest.raises(KeyboardInterrupt):
        stopped.fit(after_epoch=stop)
    code, sets = stopped.code, stopped.sets
    Run.resume(str(tmp_path / "stopped"), device="cuda:1", sets=sets, code=code).fit()
    assert replays
    assert (tmp_path / "whole" / CHECKPOINT).read_bytes() == (tmp_path / "stopped" / CHECKPOINT).read_bytes()


def test_a_run_that_adds_up_several_batches_is_not_captured(tmp_path: Path, replays: list[Any]) -> None:
    run(tmp_path / "run", graph=True, accumulate=2).fit()
    assert not replays


def trained(graphed: bool, batches: list[Any], loss_function: Any, steps: list[Any]) -> Any:
    """Train a model for an epoch; return it and the loop's result or error."""
    mn.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).to("cuda")
    optimizer = mn.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loop = GraphedLoop(model, loss_function, optimizer, 0.0) if graphed else None
    raised = ""
    try:
        score = train_by(
            loop, model, batches, loss_function, optimizer, None, lambda: None, steps.append, accumulate=1, clip_grad=0
        )
        raised = repr((score.loss, score.accuracy, score.images))
    except NonFiniteLoss as error:
        raised = str(error)
    return {**{name: value.cpu().numpy() for name, value in model.state_dict().items()}, "raised": np.array(raised)}


@pytest.mark.parametrize("what", ["nan", "ignored", "summed", "a function"])
def test_losses_and_targets_of_all_kinds(what: str, replays: list[Any]) -> None:
    loss_function: Any = nn.CrossEntropyLoss(ignore_index=2, reduction="sum" if what == "summed" else "mean").to("cuda")
    if what == "a function":
        loss_function = nn.functional.cross_entropy
    rng = np.random.default_rng(0)
    batches = [
        (mn.tensor(rng.standard_normal((6, 1, 8, 8), np.float32)), mn.tensor(rng.integers(0, 3, 6))) for _ in range(8)
    ]
    if what == "nan":
        batches[6][0][2, 0, 1, 1] = np.nan
    if what == "ignored":
        batches[5][1].fill_(2)
    eager_steps: list[Any] = []
    steps: list[Any] = []
    expected = trained(False, batches, loss_function, eager_steps)
    found = trained(True, batches, loss_function, steps)
    assert replays
    assert len(steps) == len(eager_steps) == (6 if what == "nan" else 8)
    if what == "nan":
        assert "the inputs of this batch hold 1 NaN, the first at [2, 0, 1, 1]" in str(found["raised"])
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_a_model_that_cannot_be_captured_trains_eagerly_with_one_warning(replays: list[Any]) -> None:
    class Asks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            y = self.inner(x)
            return y * 2 if y.mean().item() > 0 else y

    rng = np.random.default_rng(0)
    batches = [(mn.tensor(rng.standard_normal((3, 4), np.float32)), mn.tensor([0, 1, 0])) for _ in range(7)]
    found = []
    for graphed in (False, True):
        mn.manual_seed(0)
        model = Asks().to("cuda")
        optimizer = mn.optim.Adam(model.parameters(), lr=0.1)
        loss = nn.CrossEntropyLoss()
        if graphed:
            loop = GraphedLoop(model, loss, optimizer, 0.0)
            with pytest.warns(
                UserWarning, match=r"training on a GPU: the step is not captured.*cannot be captured.*item"
            ):
                train_by(
                    loop, model, batches, loss, optimizer, None, lambda: None, lambda _: None, accumulate=1, clip_grad=0
                )
        else:
            train_epoch(model, batches, loss, optimizer)
        found.append(model.inner.weight.cpu().numpy())
    np.testing.assert_array_equal(*found)
    assert not replays
