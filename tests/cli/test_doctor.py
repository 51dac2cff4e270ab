"""`minorm doctor`: the report, JSON, the picture, corrected models, and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import minorm as mn
from minorm import checkpoint, cli

pytest.importorskip("sklearn")
pytest.importorskip("rich")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    assert cli.main(["train", "--epochs", "5", "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def sick(run: Path) -> str:
    """A checkpoint in which the running variance of layer 4 is 16 times too large."""
    parts = checkpoint.load_training(run / "checkpoint.safetensors")
    parts["model"]["4.running_var"].array[...] *= 16
    checkpoint.save_training(run / "sick.safetensors", **parts)
    return str(run / "sick.safetensors")


@pytest.fixture(scope="module")
def sick_file(sick: str) -> str:
    pytest.importorskip("onnxruntime")
    path = sick.replace("safetensors", "onnx")
    assert cli.main(["export", sick, "--out", path]) == 0
    return path


def doctor(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = cli.main(["doctor", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_healthy_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = doctor(capsys, str(run))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == str(run / "best.safetensors"), "it says which file it took"
    assert lines[1] == "512 images, batches of 64: nothing found"


def test_a_sick_checkpoint(sick: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = doctor(capsys, sick)
    assert code == 1
    assert "ERROR stale_statistics\n  4: the running statistics differ from the data by 1.3" in out


def test_json(sick: str, sick_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    for model, batch_size in ((sick, 64), (sick_file, None)):
        code, out, _ = doctor(capsys, model, "--data", "digits", "--json")
        found = json.loads(out)
        assert code == 1
        assert (found["model"], found["images"], found["batch_size"]) == (model, 512, batch_size)
        first = found["findings"][0]
        assert (first["name"], first["layer"], first["severity"]) == ("stale_statistics", "4", "error")
        assert [row["layer"] for row in found["layers"]] == ["1", "4", "8"]
        assert {"gap", "offset"} <= found["layers"][0].keys()


@pytest.mark.parametrize("kind", ["safetensors", "onnx"])
def test_a_corrected_model(
    kind: str, sick: str, sick_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, out = {"safetensors": sick, "onnx": sick_file}[kind], str(tmp_path / f"fixed.{kind}")
    before = Path(model).read_bytes()
    code, said, _ = doctor(capsys, model, "--data", "digits", "--fix", "precise_bn", "--out", out)
    assert code == 1, "of the model that was given"
    assert f"{out}: the running statistics were measured anew on 1,408 images" in said
    assert Path(model).read_bytes() == before
    code, said, _ = doctor(capsys, out, "--data", "digits")
    assert code == 0
    assert "nothing found" in said


@pytest.mark.parametrize("kind", ["safetensors", "onnx"])
def test_a_frozen_model(
    kind: str, sick: str, sick_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from minorm.cli import sources

    model, out = {"safetensors": sick, "onnx": sick_file}[kind], str(tmp_path / f"frozen.{kind}")
    _, said, _ = doctor(capsys, model, "--data", "digits", "--fix", "freeze", "-o", out)
    assert f"{out}: all layers with running statistics are frozen" in said
    frozen = sources.open_model(out).model
    assert [frozen.get_submodule(name).frozen for name in ("1", "4", "8")] == [True] * 3
    assert doctor(capsys, out, "--data", "digits", "--json")[0] == 1, "the gap is there as before"


def test_a_run_goes_on_from_a_corrected_checkpoint(
    sick: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "checkpoint.safetensors")
    doctor(capsys, sick, "--fix", "precise_bn", "--out", out)
    assert cli.main(["train", "--resume", "--out", str(tmp_path)]) == 0


@pytest.mark.parametrize("form", ["png", "svg", "pdf"])
def test_a_picture(form: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"doctor.{form}"
    assert doctor(capsys, str(run), "--plot", str(path))[0] == 0
    assert path.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml", b"%PDF-")


def test_wrong_usage(run: Path, sick_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        ((str(run), "--fix", "freeze"), "--fix and --out FILE need each other"),
        ((str(run), "--out", str(tmp_path / "x")), "--fix and --out FILE need each other"),
        (
            (sick_file, "--fix", "precise_bn", "--out", str(tmp_path / "x")),
            "precise_bn needs images, and the file does not say what it was trained on; expected --data",
        ),
        ((sick_file, "--data", str(tmp_path), "--path", str(tmp_path)), "name two places; expected one"),
        ((sick_file, "--weights", "w.pt"), "--weights needs FILE.py:FUNCTION"),
        ((sick_file, "--image-size", "8"), "--image-size needs FILE.py:FUNCTION"),
        (("mine.py:build", "--fix", "freeze", "--out", "x"), "not of FILE.py:FUNCTION; the report says"),
        (("mine.py:build", "--batch-size", "0"), "--batch-size 0: expected 1 to 8,192"),
        ((sick_file, "--data", "digits", "--fix", "freeze", "--out", sick_file), "is the model itself"),
        ((sick_file, "--fix", "freeze", "--out", "x.png", "--plot", "x.png"), "x.png is named twice"),
        ((str(run), "--plot", str(tmp_path / "doctor.xyz")), "expected a name that ends in .png, .svg or .pdf"),
    ):
        code, out, err = doctor(capsys, *words)
        assert (code, out) == (2, "")
        assert said in err
        assert len(err.splitlines()) == 1
    with pytest.raises(SystemExit) as stop:
        cli.main(["doctor", str(run), "--fix", "pray"])
    assert stop.value.code == 2
    assert not list(tmp_path.iterdir())


def test_what_fails(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "no.onnx").write_bytes(b"no model")
    for words, said in (
        ((str(tmp_path / "missing.onnx"),), "there is no file"),
        ((str(tmp_path / "no.onnx"), "--data", "digits"), "no.onnx"),
        ((str(tmp_path),), "is a folder without best.safetensors"),
        ((str(run), "--data", "mnist"), "mnist is read from a folder"),
        ((str(run), "--plot", str(tmp_path / "none/a.png")), "does not exist; create it first"),
    ):
        code, out, err = doctor(capsys, *words)
        assert (code, out) == (1, "")
        assert said in err
        assert err.startswith("minorm doctor: ")


def test_a_file_without_images(sick_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without images, the file does not show that a variance is 16 times too large."""
    code, out, err = doctor(capsys, sick_file)
    assert (code, err) == (0, "")
    assert out.splitlines()[1] == "noise instead of images: nothing found"


def pictures(folder: Path) -> str:
    """Two classes of coloured noise."""
    image = pytest.importorskip("PIL.Image")
    draw = np.random.default_rng(0)
    for name in ("day", "night"):
        (folder / name).mkdir(parents=True)
        for place in range(16):
            image.fromarray(draw.integers(0, 255, (16, 16, 3), np.uint8)).save(folder / name / f"{place}.png")
    return str(folder)


MINE = """
import {framework} as library
from {framework} import nn

def build(channels, size, classes):
    return nn.Sequential(nn.Conv2d(channels, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
                         nn.Linear(8 * (size - 2) ** 2, classes))

def both():
    return build(3, 8, 4), [(library.randn(16, 3, 8, 8), library.arange(16) % 4) for batch in range(4)]

def alone():
    return build(3, 8, 4)

def raises():
    raise KeyError("here")

def wrong():
    return 3

def two(a, b):
    return 3
"""


@pytest.mark.parametrize("framework", ["torch", "minorm"])
def test_a_model_that_a_function_builds(framework: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip(framework)
    mine = tmp_path / "mine.py"
    mine.write_text(MINE.format(framework=framework))
    code, out, _ = doctor(capsys, f"{mine}:both", "--json")
    found = json.loads(out)
    assert (found["model"], found["images"], found["batch_size"]) == (f"{mine}:both", 64, 16)
    assert ("untouched_statistics", "1") in [(f["name"], f["layer"]) for f in found["findings"]]
    folder = pictures(tmp_path / "images")
    _, out, err = doctor(capsys, f"{mine}:build", "--data", folder, "--image-size", "12", "--batch-size", "4", "--json")
    found = json.loads(out)
    assert (found["images"], found["batch_size"]) == (26, 4), err
    assert [row["layer"] for row in found["layers"]] == ["1"]
    for function, status, said in (
        ("alone", 2, "returns a model without batches; expected (model, batches), or --data"),
        ("build", 2, "needs the channels, size and classes of the images; expected --data"),
        ("raises", 1, "mine.py:raises raised KeyError: 'here'"),
        ("wrong", 1, "mine.py:wrong returned a int; expected a torch.nn.Module or a minorm.nn.Module"),
        ("two", 1, "mine.py:two takes 2 arguments; expected none, or channels, size and classes"),
        ("missing", 1, "has no function 'missing'; it has build, both"),
    ):
        code, out, err = doctor(capsys, f"{mine}:{function}")
        assert (code, out) == (status, "")
        assert said in err
        assert len(err.splitlines()) == 1


@pytest.mark.parametrize("kind", ["pt", "safetensors", "npz"])
def test_weights_for_a_module_of_pytorch(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file holds a variance of 400 where the images give one near 1."""
    torch = pytest.importorskip("torch")
    mine, path = tmp_path / "mine.py", tmp_path / f"weights.{kind}"
    mine.write_text(MINE.format(framework="torch"))
    nn = torch.nn
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4))
    model[1].running_var.fill_(400)
    state = model.state_dict()
    if kind == "pt":
        torch.save({"epoch": 3, "state_dict": state}, path)
    elif kind == "npz":
        np.savez(path, **{key: value.numpy() for key, value in state.items()})
    else:
        mn.save({key: mn.tensor(value.numpy()) for key, value in state.items()}, path)
    _, out, err = doctor(capsys, f"{mine}:both", "--weights", str(path), "--json")
    assert ("stale_statistics", "1") in [(f["name"], f["layer"]) for f in json.loads(out)["findings"]], err
    torch.save(nn.Linear(3, 4).state_dict(), tmp_path / "other.pt")
    code, out, err = doctor(capsys, f"{mine}:both", "--weights", str(tmp_path / "other.pt"))
    assert (code, out) == (1, "")
    assert "other.pt lacks 0.weight; 0.bias; 1.weight; 1.bias and 4 more; expected the tensors of the model" in err


def test_a_pickle_is_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    mine, path = tmp_path / "mine.py", tmp_path / "whole.pt"
    mine.write_text(MINE.format(framework="torch"))
    torch.save(torch.nn.Linear(3, 4), path)
    code, out, err = doctor(capsys, f"{mine}:both", "--weights", str(path))
    assert (code, out) == (1, "")
    assert "whole.pt" in err


def test_pictures_in_a_folder_for_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnx")
    import minorm.onnx
    from minorm import nn

    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model[1].running_var *= 400
    path = tmp_path / "model.onnx"
    minorm.onnx.export(model, mn.zeros(2, 3, 12, 12), path)
    folder = pictures(tmp_path / "images")
    _, out, _ = doctor(capsys, str(path), "--data", folder, "--json")
    assert next((f["name"], f["layer"]) for f in json.loads(out)["findings"]) == ("stale_statistics", "1")
    assert json.loads(out)["images"] == 26, "a fifth of each class is set aside"
    code, out, err = doctor(capsys, str(path), "--data", str(tmp_path / "missing"))
    assert (code, out) == (1, "")
    assert "missing" in err
    with pytest.raises(SystemExit) as stop:
        cli.main(["doctor", str(path), "--data", "missing"])
    assert stop.value.code == 2
