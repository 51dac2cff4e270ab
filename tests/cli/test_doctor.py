"""`minorm doctor`: the report, JSON, the picture, corrected models, and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
    assert "ERROR stale_statistics\n  4: running statistics are 1.3" in out


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
    assert f"{out}: running statistics measured anew, on 1,408 images" in said
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
    assert f"{out}: every layer with running statistics is frozen" in said
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
        ((str(run), "--fix", "freeze"), "--fix and --out FILE go together"),
        ((str(run), "--out", str(tmp_path / "x")), "--fix and --out FILE go together"),
        ((sick_file,), "does not say what it was trained on; expected --data"),
        ((sick_file, "--data", "digits", "--fix", "freeze", "--out", sick_file), "is the model itself"),
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
