"""`minorm profile`: what it runs, the table, the sentence, JSON and the flame graphs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import cli
from minorm.training import Run, Settings


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("run")
    numbers = np.random.default_rng(0).standard_normal((20, 1, 8, 8)).astype(np.float32)
    data = mn.data.ArrayDataset(numbers, np.arange(20) % 10)
    Run(Settings(epochs=1, batch_size=10), str(folder), sets=(data, data)).fit()
    return str(folder)


@pytest.fixture(scope="module")
def graph(run: str) -> str:
    pytest.importorskip("onnxruntime")
    path = f"{run}/model.onnx"
    assert cli.main(["export", run, "--out", path]) == 0
    return path


def told(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    capsys.readouterr()
    assert cli.main(["profile", *args]) == 0
    return capsys.readouterr().out


def found(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(told(capsys, *args, "--json"))
    return answer


def test_a_run_is_told_by_layer_with_a_sentence(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, run, "--steps", "2")
    first, _, head, *_ = text.splitlines()
    assert "2 training steps with batches of 10 random inputs of 1 x 8 x 8 on cpu: " in first
    assert head.split()[:2] == ["Name", "Self"]
    assert "3 (Conv2d, backward)" in text
    assert re.search(r"^\d+ % of a step is spent in .+$", text.splitlines()[-1])


def test_training_has_both_passes_and_the_optimizer(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = found(capsys, run, "--steps", "3", "--batch-size", "4")
    operations = {row["key"]: row for row in answer["operations"]}
    assert answer["steps"] == 3
    assert operations["Optimizer.step#SGD.step"]["count"] == operations["CrossEntropyBackward"]["count"] == 3
    assert operations["Convolution"]["count"] == operations["ConvolutionBackward"]["count"] == 9
    whole = sum(row["self_cpu_time_total"] for row in answer["layers"])
    assert whole == pytest.approx(answer["microseconds"])
    assert answer["peak_bytes"] > 4 * 16 * 8 * 8 * 4  # the first layer's result


def test_inference_has_no_backward_pass(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = found(capsys, run, "--steps", "2", "--inference")
    names = [row["key"] for row in answer["operations"]]
    assert "Convolution" in names
    assert not any("Backward" in name or "Optimizer" in name for name in names)
    assert all(row["kept_memory_usage"] == 0 for row in answer["operations"])


@pytest.mark.parametrize("more", [[], ["--inference"]])
def test_an_onnx_file_is_told_by_the_names_of_its_weights(
    graph: str, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    names = {row["key"].split(" ")[0] for row in found(capsys, graph, "--steps", "2", *more)["layers"]}
    assert {"0", "3", "7", "12"} <= names


def test_with_data_reading_counts(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    text = told(capsys, run, "--steps", "2", "--data", "digits", "--by", "operation", "--rows", "-1")
    assert "batches of 10 images that are read" in text
    assert "DataLoader.__next__" in text


@pytest.mark.parametrize(("name", "key"), [("trace.json", "traceEvents"), ("run.speedscope.json", "profiles")])
def test_the_flame_graph_is_of_the_kind_that_the_name_says(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, key: str
) -> None:
    text = told(capsys, run, "--steps", "1", "--rows", "2", "-o", str(tmp_path / name))
    assert text.splitlines()[-1] == f"flame graph: {tmp_path / name}"
    assert key in json.loads((tmp_path / name).read_text())


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--steps", "0"], "--steps 0: expected at least 1"),
        (["--batch-size", "-1"], "--batch-size -1: expected at least 1"),
        (["-o", "trace.html"], "--out trace.html: expected a name that ends in .json"),
    ],
)
def test_wrong_options_are_errors_of_usage(
    run: str, capsys: pytest.CaptureFixture[str], args: list[str], said: str
) -> None:
    assert cli.main(["profile", run, *args]) == 2
    assert said in capsys.readouterr().err


def test_the_profiled_model_stays_what_it_was(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name: path.read_bytes() for path in Path(run).iterdir() if path.is_file()}
    told(capsys, run, "--steps", "1")
    assert before == {path.name: path.read_bytes() for path in Path(run).iterdir() if path.is_file()}
