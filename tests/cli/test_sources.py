"""Finding a MODEL (a run's folder, a checkpoint, an ONNX file) and reading its data."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import numpy as np
import pytest

import minorm as mn
from minorm import checkpoint, cli, nn
from minorm.cli import sources
from minorm.cli.terminal.one_line_errors import UsageError
from minorm.training.data import file_preprocessing
from minorm.training.data.preparing import Preprocessing
from minorm.training.files.run_folder import weights_file

pytest.importorskip("sklearn")
pytest.importorskip("rich")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    assert cli.main(["train", "--epochs", "1", "--batch-size", "32", "--seed", "3", "--out", str(folder)]) == 0
    return folder


def options(**given: str) -> argparse.Namespace:
    return argparse.Namespace(**{"data": None, "path": None, "max_bytes": None, **given})


def test_a_folder_means_its_best_else_its_last(run: Path, tmp_path: Path) -> None:
    assert weights_file(str(run)) == str(run / "best.safetensors")
    assert sources.open_model(str(run)).path == str(run / "best.safetensors")
    shutil.copytree(run, tmp_path / "two")
    (tmp_path / "two/best.safetensors").unlink()
    assert sources.open_model(str(tmp_path / "two")).path == str(tmp_path / "two/checkpoint.safetensors")
    with pytest.raises(FileNotFoundError, match=r"is a folder without best.safetensors and checkpoint.safetensors"):
        sources.open_model(str(tmp_path))


def test_a_checkpoint_says_its_model_and_settings(run: Path) -> None:
    source = sources.open_model(str(run / "checkpoint.safetensors"))
    assert source.kind == "checkpoint"
    assert source.facts == {"name": "digits", "channels": 1, "size": 8, "classes": 10}
    assert source.settings is not None
    assert (source.settings.batch_size, source.settings.seed) == (32, 3)


def test_an_onnx_file(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    for name in ("model.onnx", "model"):
        assert cli.main(["export", str(run), "--out", str(tmp_path / name)]) == 0
        source = sources.open_model(str(tmp_path / name))
        assert (source.kind, source.settings) == ("onnx", None)
    with pytest.raises(ValueError, match=r"model.onnx"):
        sources.open_checkpoint(str(tmp_path / "model.onnx"))


@pytest.mark.parametrize("command", ["evaluate", "doctor", "predict"])
def test_what_an_onnx_file_may_take(
    command: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    model = str(tmp_path / "model.onnx")
    assert cli.main(["export", str(run), "--out", model]) == 0
    arguments = ["no.png"] if command == "predict" else ["--data", "digits"]
    assert cli.main([command, model, *arguments, "--max-bytes", "1000"]) != 0
    assert "more than max_bytes=1000; pass a larger max_bytes (--max-bytes)" in capsys.readouterr().err
    if command == "evaluate":
        assert cli.main([command, model, *arguments, "--max-bytes", str(1 << 28)]) == 0


@pytest.mark.parametrize("wrong", [b"", b"no model", bytes(range(256)) * 9, b"\x10\0\0\0\0\0\0\0{not json......"])
@pytest.mark.parametrize("name", ["a.safetensors", "a.onnx", "a"])
def test_a_file_that_is_no_model(tmp_path: Path, wrong: bytes, name: str) -> None:
    pytest.importorskip("onnx")
    (tmp_path / name).write_bytes(wrong)
    with pytest.raises(ValueError):
        sources.open_model(str(tmp_path / name))
    with pytest.raises(FileNotFoundError, match="there is no file"):
        sources.open_model(str(tmp_path / "missing.onnx"))


def test_a_checkpoint_of_something_else(tmp_path: Path) -> None:
    mn.save({"w": mn.zeros(2)}, tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match="does not say which model it holds"):
        sources.open_model(str(tmp_path / "w.safetensors"))
    checkpoint.save_training(tmp_path / "t.safetensors", epoch=1)
    with pytest.raises(ValueError, match="there is no model_facts in it"):
        sources.open_model(str(tmp_path / "t.safetensors"))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ("{", "minorm.model of its metadata is no JSON"),
        ("[" * 100_000, "minorm.model of its metadata is no JSON"),
        ("[]", "the facts of its model are list; expected name, channels, size, classes"),
        ('{"name": "digits", "channels": 1, "size": 8, "classes": 10}', "the part 'model' does not fit"),
        ('{"name": "digits", "channels": 1, "size": 8, "classes": 1000000000}', "classes of its model is 1000000000"),
        ('{"name": "resnet20", "channels": 3, "size": 8, "classes": 10}', "parameters; a file of 100,"),
    ],
)
def test_a_file_of_weights_whose_facts_are_wrong(tmp_path: Path, facts: str, said: str) -> None:
    path = str(tmp_path / "w.safetensors")
    mn.save({"w": mn.zeros(25_000)}, path, metadata={sources.FACTS: facts})
    with pytest.raises(ValueError, match=rf"{path}.*{said}"):
        sources.open_model(path)


def test_a_changed_model_is_written_as_what_it_was(run: Path, tmp_path: Path) -> None:
    source = sources.open_model(str(run / "checkpoint.safetensors"))
    source.model[1].running_mean.fill_(3)
    source.model[4].freeze()
    source.write(str(tmp_path / "again.safetensors"))
    again = sources.open_model(str(tmp_path / "again.safetensors"))
    assert (again.model[1].running_mean.array == 3).all()
    assert [again.model[i].frozen for i in (1, 4, 8)] == [False, True, False]
    assert again.settings == source.settings
    before, after = (checkpoint.load_training(p) for p in (source.path, again.path))
    assert before.keys() | {"frozen"} == after.keys()
    assert before["optimizer"].keys() == after["optimizer"].keys(), "a run can go on from it"


def test_frozen_layers_that_a_model_does_not_have(run: Path, tmp_path: Path) -> None:
    parts = checkpoint.load_training(run / "checkpoint.safetensors")
    checkpoint.save_training(tmp_path / "f.safetensors", **{**parts, "frozen": ["77"]})
    with pytest.raises(ValueError, match="the layer '77' is frozen, which the model does not have"):
        sources.open_model(str(tmp_path / "f.safetensors"))


def test_the_data_are_those_of_the_run(run: Path) -> None:
    loader = sources.training_loader(sources.open_model(str(run)), options())
    images, labels = next(iter(loader))
    assert images.shape == (32, 1, 8, 8)
    whole = np.concatenate([x.array for x, _ in loader])
    assert abs(whole.mean()) < 0.05, "scaled as in training"
    assert abs(whole.std() - 1) < 0.05
    assert labels.shape == (32,)


def test_data_that_nobody_names(run: Path) -> None:
    source = sources.open_model(str(run))
    source.settings = None
    with pytest.raises(UsageError, match=r"does not say what it was trained on; expected --data digits\|mnist"):
        sources.training_loader(source, options())
    assert len(sources.training_loader(source, options(data="digits")).dataset) == 1438
    with pytest.raises(ValueError, match="mnist is read from a folder"):
        sources.training_loader(source, options(data="mnist"))


def test_fewer_images_than_the_run_had_in_a_batch(run: Path, tmp_path: Path) -> None:
    x, y = np.zeros((5, 8, 8), np.float32), np.arange(5)
    np.savez(tmp_path / "few.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    few = options(data="numpy", path=str(tmp_path / "few.npz"))
    ((images, _),) = sources.training_loader(sources.open_model(str(run)), few)
    assert images.shape == (5, 1, 8, 8)


def test_classes_and_scaling_travel_in_metadata() -> None:
    found = Preprocessing(["chat", "été"], [0.5, 0.4, 0.3], [0.2, 0.2, 0.1], 48, 3)
    metadata = file_preprocessing.description(found)
    assert file_preprocessing.read(metadata) == found
    for changed in (
        {}, {"classes": "[1, 2]"}, {"classes": "no JSON"}, {"preprocessing": "[]"},
        {"preprocessing": metadata["preprocessing"].replace("48", "-1")},
        {"preprocessing": metadata["preprocessing"].replace("48", "1e9")},
        {"preprocessing": metadata["preprocessing"].replace("48", "1000000")},
        {"preprocessing": metadata["preprocessing"].replace("0.2, 0.2", "0.2")},
        {"preprocessing": metadata["preprocessing"].replace("0.1", "0")},
        {"preprocessing": metadata["preprocessing"].replace("size", "side")},
    ):  # fmt: skip
        assert file_preprocessing.read({**metadata, **changed} if changed else {}) is None, changed


@pytest.mark.parametrize(
    ("metadata", "classes"),
    [
        ({"classes": '["cat", "dog"]'}, ["cat", "dog"]),
        ({"classes": "cat, dog"}, []),
        ({"classes": "[1, 2]"}, []),
        ({"classes": "[" * 100_000}, []),
        ({}, []),
    ],
)
def test_classes_of_a_file_that_does_not_say_how_pixels_are_scaled(
    metadata: dict[str, str], classes: list[str], tmp_path: Path
) -> None:
    mo = pytest.importorskip("minorm.onnx")
    model = mo.load(mo.export(nn.Sequential(nn.Flatten(), nn.Linear(3 * 4 * 4, 2)), mn.zeros(1, 3, 4, 4)))
    model.metadata.update(metadata)
    mo.export(model, None, tmp_path / "model.onnx")
    found = sources.open_model(str(tmp_path / "model.onnx")).preprocessing
    assert found == Preprocessing(classes, [0.0] * 3, [1.0] * 3, 4, 3)
