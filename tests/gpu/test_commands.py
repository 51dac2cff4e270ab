"""The command line, and what trains, from start to end on the double: nothing takes a tensor of a GPU for NumPy's."""

from __future__ import annotations

import csv
import functools
import json
from pathlib import Path
from typing import Any

import cupy_graphs
import numpy as np
import pytest
from command_walk import COMMANDS, KINDS, TRAINED, made, walk

import minorm as mn
from minorm import cli, nn, plots
from minorm.checkpoint import load_training
from minorm.data import ArrayDataset, DataLoader, Subset
from minorm.training import BatchNormWatch, Run, Settings
from minorm.training import run as run_module
from minorm.training.files.outcome import outcome
from minorm.training.run import BEST, CHECKPOINT, LOG
from tests.cli.test_main import parsers

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("rich")
pytest.importorskip("matplotlib")

MODEL = """
from minorm import nn

def build(channels, size, classes):
    return nn.Sequential(nn.Conv2d(channels, 8, 3, stride=2, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, classes))
"""
EVERYTHING = (
    "--ema 0.9 --accumulate 2 --clip-grad 1 --early-stopping 2 --hflip 0.5 --crop-padding 1 --cutout 2 --mixup 0.2 "
    "--label-smoothing 0.1 --class-weights balanced --warmup-epochs 1"
)
WAYS = {
    "plain": "",
    "everything": f"{EVERYTHING} --optimizer adamw",
    "int8": "--qat uint8 --hflip 0.5",
    "bfloat16": "--dtype bfloat16 --optimizer adam --color-jitter 0.1 --cutmix 0.2",
}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes of small pictures, more of one than of the others."""
    root = tmp_path_factory.mktemp("pictures")
    y, x = np.mgrid[:12, :14]
    for kind, name in enumerate(("bars", "checks", "stripes")):
        (root / name).mkdir()
        shape = (x // 3 % 2, y // 3 % 2, (x // 6 + y // 6) % 2)[kind][..., None]
        for i in range(10 - kind):
            noise = np.random.default_rng((kind, i)).integers(0, 100, (12, 14, 3))
            Image.fromarray((noise + 150 * shape).astype(np.uint8)).save(root / name / f"{i:02}.png")
    (root / "model.py").write_text(MODEL)
    return root


def train(pictures: Path, out: Path, *more: str) -> int:
    words = ["train", "--path", str(pictures), "--out", str(out), "--device", "cuda:1"]
    return cli.main([*words, *more])


def log(out: Path) -> list[dict[str, float]]:
    with (out / LOG).open() as file:
        return [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.usefixtures("cuda")
def test_it_trains_reports_and_is_asked(
    way: str, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Train, stop and resume, finish; then evaluate, predict, doctor and export what there is."""
    model, out = f"{pictures}/model.py:build", tmp_path / "run"
    new = ["--data", "folder", "--image-size", "8", "--epochs", "2", "--batch-size", "6", "--model", model]
    assert train(pictures, out, *new, *WAYS[way].split()) == 0
    assert "report:" in capsys.readouterr().out
    assert {file.name for file in out.iterdir()} >= {CHECKPOINT, BEST, LOG, "report.html", "curves.png"}
    assert "Normalizations" in (out / "report.html").read_text()
    assert [row["epoch"] for row in log(out)] == [1, 2]
    assert train(pictures, out, "--resume", "--model", model) == 0  # it is finished, and says so
    capsys.readouterr()

    trusted = ["--path", str(pictures), "--model", model]
    assert cli.main(["evaluate", str(out), "--json", "--model", model]) == 0  # its own validation images
    best = min(log(out), key=lambda row: (-row["val_accuracy"], row["val_loss"]))
    assert json.loads(capsys.readouterr().out)["accuracy"] == pytest.approx(best["val_accuracy"], abs=1e-6)
    assert cli.main(["predict", str(out), str(pictures / "bars" / "00.png"), "--json", "--model", model]) == 0
    assert json.loads(capsys.readouterr().out)[0]["label"] in ("bars", "checks", "stripes")
    assert cli.main(["doctor", str(out), *trusted]) in (0, 1)
    fixed = str(tmp_path / "fixed.safetensors")
    if way == "int8":
        assert cli.main(["export", str(out), "-o", str(tmp_path / "int8.onnx"), "--model", model]) == 0
    else:
        assert cli.main(["doctor", str(out), *trusted, "--fix", "precise_bn", "--out", fixed]) in (0, 1)


@pytest.mark.usefixtures("cuda")
def test_a_run_that_was_stopped_goes_on_there_and_ends_with_the_same_scores(pictures: Path, tmp_path: Path) -> None:
    model = f"{pictures}/model.py:build"
    settings = Settings(data="folder", image_size=8, epochs=2, batch_size=6, model=model, ema=0.9)
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    Run(settings, str(whole), str(pictures), "cuda:1").fit()

    def stop(row: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Run(settings, str(stopped), str(pictures), "cuda:1").fit(after_epoch=stop)
    assert train(pictures, stopped, "--resume", "--model", model) == 0
    assert (stopped / "report.html").exists()
    assert (stopped / LOG).read_text() == (whole / LOG).read_text()
    left, right = (load_training(str(folder / CHECKPOINT))["model"] for folder in (whole, stopped))
    for name, value in left.items():
        np.testing.assert_array_equal(np.asarray(right[name]), np.asarray(value), err_msg=name)


@pytest.mark.usefixtures("cuda")
def test_a_command_without_graphs_writes_the_same_run(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command captures its steps by itself; --no-graph, or no-graph = true in a file, switches that off."""
    replays = []
    launch = cupy_graphs.Graph.launch
    monkeypatch.setattr(cupy_graphs.Graph, "launch", lambda graph, stream=None: (replays.append(1), launch(graph)))
    (tmp_path / "run.toml").write_text("no-graph = true\n")
    new = ["--data", "folder", "--image-size", "8", "--epochs", "2", "--batch-size", "4", "--ema", "0.9"]
    model = ["--model", f"{pictures}/model.py:build"]
    counts = {}
    for name, more in {"graphs": [], "none": ["--no-graph"], "file": ["--config", str(tmp_path / "run.toml")]}.items():
        replays.clear()
        assert train(pictures, tmp_path / name, *new, *model, *more) == 0
        counts[name] = len(replays)
    assert counts["graphs"] > 0
    assert counts["none"] == counts["file"] == 0
    for file in (LOG, CHECKPOINT, BEST):
        expected = (tmp_path / "none" / file).read_bytes()
        assert (tmp_path / "graphs" / file).read_bytes() == (tmp_path / "file" / file).read_bytes() == expected, file


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory, pictures: Path) -> Any:
    """A function from a kind of data to the words of commands, which name a run that the CPU has trained."""
    return functools.cache(lambda kind: made(kind, tmp_path_factory.mktemp(kind), pictures))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_answers_as_on_the_cpu(
    name: str, walks: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], cuda: Any
) -> None:
    walk(name, walks("folder"), tmp_path, capsys, cuda)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS[1:])
def test_every_command_answers_for_other_data(
    kind: str, walks: Any, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], cuda: Any
) -> None:
    """Also train there, from the first epoch to the report, and go on."""
    words = walks(kind)
    for number, name in enumerate(COMMANDS):
        (tmp_path / str(number)).mkdir()
        walk(name, words, tmp_path / str(number), capsys, cuda)
    out = tmp_path / "run"
    new = [*words["images"].split(), "--model", words["model"], "--out", str(out), "--device", "cuda:1"]
    assert cli.main(["train", *new, "--epochs", "1", "--batch-size", "6", "--ema", "0.9", "--clip-grad", "1"]) == 0
    assert (out / "report.html").exists()
    more = ["--resume", "--out", str(out), "--epochs", "2", "--device", "cuda:1", "--model", words["model"]]
    assert cli.main(["train", *more]) == 0
    assert [row["epoch"] for row in log(out)] == [1, 2]


def test_the_walk_has_every_command_with_a_device() -> None:
    having = {name for name, parser in parsers(cli._parser()) if "--device" in parser._option_string_actions}
    assert {command.split()[0] for command in COMMANDS.values()} | TRAINED == having


@pytest.mark.slow
@pytest.mark.usefixtures("cuda")
def test_the_demo_runs_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of few images it learns too little; all other claims hold."""
    whole = run_module.load_data
    few = lambda settings, path: tuple(Subset(part, range(80)) for part in whole(settings, path))  # noqa: E731
    monkeypatch.setattr(run_module, "load_data", few)
    assert cli.main(["demo", "--epochs", "1", "--seeds", "1", "-o", str(tmp_path / "demo"), "--device", "cuda"]) == 1
    assert "Failed: test accuracy." in capsys.readouterr().out
    assert {file.name for file in (tmp_path / "demo").iterdir()} == {"model.safetensors", "model.onnx", "training.png"}


def data() -> ArrayDataset:
    rng = np.random.default_rng(0)
    return ArrayDataset(rng.standard_normal((12, 3, 6, 6)).astype(np.float32), rng.integers(0, 3, 12))


def network() -> Any:
    mn.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    return nn.Sequential(*layers)


@pytest.mark.usefixtures("cuda")
def test_what_looks_at_a_model_looks_at_one_on_a_gpu() -> None:
    """Each of these answers as it does for the same model on the CPU."""
    found = {}
    for device in ("cpu", "cuda:1"):
        model = network().to(device)
        other = network().to(device)
        watch, population = BatchNormWatch(model), BatchNormWatch(other)
        x, y = next(iter(DataLoader(data(), 12)))
        for _ in range(2):
            nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
            watch.step()
        other(x.to(device))
        population.step()
        rows = [{"epoch": 1, "learning_rate": 0.1, "train_loss": 1.0, "train_accuracy": 0.5, "val_loss": 1.0,
                 "val_accuracy": 0.5}]  # fmt: skip
        plots.training_picture("title", [1.0, 0.9], rows, watch, population)
        shown = outcome(model.eval(), DataLoader(data(), 5))
        nn.utils.precise_bn(model, DataLoader(data(), 6))
        found[device] = [
            *watch.batch("1"), *watch.running("1"), shown.probabilities, shown.losses,
            model[1].running_var.cpu().numpy(), np.frombuffer(str(nn.summary(model, (2, 3, 6, 6))).encode(), np.uint8),
        ]  # fmt: skip
        plots.confusion(shown.confusion, ["a", "b", "c"])
    for cpu, gpu in zip(found["cpu"], found["cuda:1"], strict=True):
        assert isinstance(gpu, (np.ndarray, np.generic))
        np.testing.assert_allclose(gpu, cpu, rtol=1e-4, atol=1e-5)
