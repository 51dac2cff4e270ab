"""Whether a command runs the code that came with a checkpoint: only where the user says so."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import minorm as mn
from minorm import cli

pytest.importorskip("sklearn")
pytest.importorskip("rich")

MODEL = """
with open({mark!r}, "a") as file:
    file.write("x")
from minorm import nn
def build(channels, size, classes):
    return nn.Sequential(nn.Conv2d(channels, 8, 3), nn.BatchNorm2d(8), nn.Flatten(),
                         nn.Linear(8 * (size - 2)**2, classes))
"""


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with mine.py, and a run of it in run/; what mine.py runs is counted in the file `ran`."""
    root = tmp_path_factory.mktemp("own")
    (root / "mine.py").write_text(MODEL.format(mark=str(root / "ran")))
    words = ["train", "--epochs", "1", "--model", f"{root}/mine.py:build", "-o", str(root / "run")]
    assert cli.main(words) == 0
    return root


@pytest.fixture
def there(trained: Path) -> Path:
    (trained / "ran").unlink(missing_ok=True)
    return trained


def commands(run: Path, out: Path) -> list[list[str]]:
    data = ["--data", "digits"]
    return [
        ["evaluate", str(run), *data],
        ["doctor", str(run), *data],
        ["predict", str(run), "picture.png"],
        ["export", str(run), "-o", str(out / "m.onnx")],
        ["train", "--resume", "-o", str(run)],
    ]


def test_every_command_says_what_it_would_run_and_the_line_to_write(
    there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("PIL")
    pytest.importorskip("onnxruntime")
    best = f"{there}/run/best.safetensors"
    digest = json.loads(mn.checkpoint.load_metadata(best)["minorm.tree"])["model_facts"]["sha256"][:12]
    for words in commands(there / "run", tmp_path):
        capsys.readouterr()
        assert cli.main(words) == 2, words
        told = capsys.readouterr().err
        assert f"in the same folder: 'build' in '{there}/run/mine.py', SHA-256 {digest}. No code was run." in told
        line = shlex.join(["minorm", words[0], "--trust", *words[1:]])
        assert told.endswith(f"to run it, use: {line}\n")
        assert not (there / "ran").exists()
    for words in commands(there / "run", tmp_path)[:2]:
        assert cli.main([words[0], "--trust", *words[1:]]) in (0, 1)
        assert (
            f"minorm {words[0]}: running 'build' in '{there}/run/mine.py', SHA-256 {digest}" in capsys.readouterr().err
        )
    assert (there / "ran").read_text() == "xx"
    assert cli.main(["train", "--trust", "--resume", "-o", str(there / "run")]) == 0
    assert "running 'build' in" in capsys.readouterr().err


def test_without_the_copy_a_file_of_the_users_is_asked_for(
    there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("best.safetensors", "checkpoint.safetensors"):
        shutil.copy(there / "run" / name, tmp_path)
    for words in commands(tmp_path, tmp_path):
        capsys.readouterr()
        assert cli.main([words[0], "--trust", *words[1:]]) == 2, words
        told = capsys.readouterr().err
        line = shlex.join(["minorm", words[0], "--model", "FILE.py:build", "--trust", *words[1:]])
        assert "is built by code that is not in the same folder; no code was run" in told
        assert told.endswith(f"with a file of yours, use: {line}\n")
    assert not (there / "ran").exists()
    words = ["evaluate", str(tmp_path), "--data", "digits", "--json"]
    assert cli.main([*words, "--model", f"{there}/mine.py:build"]) == 0
    assert (there / "ran").exists()


def test_another_file_does_not_resume(there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(there / "run", tmp_path / "run")
    other = tmp_path / "mine.py"
    other.write_text((there / "mine.py").read_text() + "\n")
    words = ["train", "--resume", "-o", str(tmp_path / "run"), "--model"]
    assert cli.main([*words, f"{other}:build"]) == 1
    assert f"{other} is no longer the file" in capsys.readouterr().err
    assert cli.main([*words, f"{there}/mine.py:other"]) == 1
    assert "model is 'mine.py:other'; expected the function 'build'" in capsys.readouterr().err
    assert cli.main([*words, "lenet"]) == 1
    assert "model is 'lenet'; expected 'mine.py:build', as in the run in" in capsys.readouterr().err
    assert not (there / "ran").exists()
    assert cli.main([*words, f"{there}/mine.py:build"]) == 0


def test_a_terminal_is_asked(there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["evaluate", str(there / "run"), "--json"]
    for answer, code in (("n\n", 2), ("\n", 2), ("", 2), ("yes\n", 0), ("Y\n", 0)):
        (there / "ran").unlink(missing_ok=True)
        said = Terminal()
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        monkeypatch.setattr(sys, "stderr", said)
        assert cli.main(words) == code, answer
        assert f"'build' in '{there}/run/mine.py'" in said.getvalue()
        assert "Run it? [y/N]" in said.getvalue()
        assert (there / "ran").exists() == (code == 0)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert cli.main(words) == 2, "errors go to a file: nothing is asked"


def test_trust_and_other_images_go_with_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, others in (("--trust", "--resume or --init"), ("--other-images", "--resume")):
        assert cli.main(["train", name, "-o", str(tmp_path / "run")]) == 2
        assert f"{name} needs {others}" in capsys.readouterr().err


def test_a_lone_file_runs_nothing_of_pythons_own_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of Python that every machine has, with arguments that a stranger chose."""
    mark, path, library = tmp_path / "ran", str(tmp_path / "weights.safetensors"), subprocess.__file__
    facts = {
        "name": f"{library}:call",
        "channels": ["touch", str(mark)],
        "size": -1,
        "classes": None,
        "sha256": "0" * 64,
    }
    for changed in ({}, {"channels": 1, "size": 8, "classes": 10}):
        mn.save({"w": mn.ones(9)}, path, metadata={"minorm.model": json.dumps({**facts, **changed})})
        for words in (
            ["evaluate", path],
            ["doctor", path],
            ["predict", path, path],
            ["export", path, "-o", f"{path}.onnx"],
        ):
            assert cli.main([*words[:1], "--trust", *words[1:]]) == (2 if changed else 1)
            assert path in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["weights.safetensors"]
