"""Every command that has --device, on a run that the CPU has trained: it answers on a GPU as it does on the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from minorm import cli

COMMANDS = {
    "evaluate": "evaluate {run} --model {model} --json",
    "evaluate several views": "evaluate {run} --model {model} --split train --tta hflip,crops --json",
    "evaluate an ONNX file": "evaluate {onnx} {images} --split validation --json",
    "evaluate an int8 file": "evaluate {int8} {images} --split validation --json",
    "predict": "predict {run} {picture} --model {model} --top-k 2 --json",
    "predict to a page": "predict {run} {picture} --model {model} --html {out}/page.html",
    "predict by an ONNX file": "predict {onnx} {picture} --dtype bfloat16 --csv",
    "doctor": "doctor {run} --model {model} --json",
    "doctor that mends": "doctor {run} --model {model} --fix precise_bn --out {out}/m.safetensors --plot {out}/d.png",
    "doctor of an ONNX file": "doctor {onnx} {images} --json",
    "doctor without images": "doctor {onnx} --json",
    "profile": "profile {run} --model {model} --steps 1 --json",
    "profile inference": "profile {onnx} --inference --steps 1 -o {out}/trace.json",
    "lr-find": "lr-find {images} {size} --model {model} --steps 10 --batch-size 6 --clip-grad 1 --json",
    "check": "check {onnx} --json",
    "check an int8 file": "check {int8} --brief",
    "quantize": "quantize {run} --model {model} --images 8 -o {out}/int8.onnx --json",
}
TRAINED = {"train", "demo"}  # other tests walk these
FINDINGS = ("doctor",)  # these may end with 1
MEASURED = ("profile", "check", "quantize")  # of which the times differ
KINDS = ("folder", "numpy", "mnist")


def write_data(kind: str, root: Path, pictures: Path) -> str:
    """Write few images of a kind; return the words that name them."""
    rng = np.random.default_rng(0)
    if kind == "folder":
        return f"--data folder --path {pictures}"
    if kind == "numpy":
        drawn = {f"x_{part}": rng.integers(0, 256, (n, 8, 8, 3), np.uint8) for part, n in (("train", 14), ("test", 6))}
        np.savez(root / "a.npz", **drawn, y_train=np.arange(14) % 3, y_test=np.arange(6) % 3)
        return f"--data numpy --path {root / 'a.npz'}"
    for part, count in (("train", 12), ("t10k", 6)):
        drawn = rng.integers(0, 256, (count, 28, 28), np.uint8)
        write_idx(root / f"{part}-images-idx3-ubyte", drawn)
        write_idx(root / f"{part}-labels-idx1-ubyte", (np.arange(count) % 10).astype(np.uint8))
    return f"--data mnist --path {root}"


def made(kind: str, root: Path, pictures: Path) -> dict[str, str]:
    """Train a run on few images of a kind, and write it as an ONNX file and an int8 file; return the words for these.

    `pictures` is a folder of classes that also holds a model.py.
    """
    words = {
        "images": write_data(kind, root, pictures), "model": f"{pictures}/model.py:build", "run": f"{root}/run",
        "onnx": f"{root}/m.onnx", "int8": f"{root}/int8.onnx", "picture": f"{pictures}/bars/00.png",
        "size": "--image-size 8" if kind == "folder" else "",
    }  # fmt: skip
    for command in (
        "train {images} {size} --model {model} --out {run} --epochs 1 --batch-size 6",
        "export {run} --model {model} -o {onnx}",
        "quantize {onnx} {images} -o {int8}",
    ):
        assert cli.main(command.format(**words).split()) == 0, command
    return words


def write_idx(path: Path, array: np.ndarray) -> None:
    """Write an array of bytes in MNIST's format."""
    head = bytes([0, 0, 8, array.ndim]) + b"".join(length.to_bytes(4, "big") for length in array.shape)
    path.write_bytes(head + array.tobytes())


def answer(command: str, words: dict[str, str], device: str, out: Path, capsys: Any) -> tuple[int, str]:
    """Return the exit code and what is printed."""
    out.mkdir()
    capsys.readouterr()
    code = cli.main([*command.format(**words, out=out).split(), "--device", device])
    return code, capsys.readouterr().out


def numbers(said: Any) -> list[float]:
    """The numbers of JSON, in order."""
    if isinstance(said, dict):
        said = list(said.values())
    if isinstance(said, list):
        return [number for part in said for number in numbers(part)]
    return [float(said)] if isinstance(said, (int, float)) else []


def walk(name: str, words: dict[str, str], tmp_path: Path, capsys: Any, cupy: Any) -> None:
    """Run a command on both devices, and compare."""
    command = COMMANDS[name]
    code, expected = answer(command, words, "cpu", tmp_path / "cpu", capsys)
    assert code == 0 or command.startswith(FINDINGS)
    cupy.transfers.clear()
    found_code, found = answer(command, words, "cuda:1", tmp_path / "cuda", capsys)
    assert found_code == code
    assert sum(cupy.transfers.launches.values()) > 0, "nothing ran on the GPU"
    assert {p.name for p in (tmp_path / "cpu").iterdir()} == {p.name for p in (tmp_path / "cuda").iterdir()}
    if "--json" in command and command.startswith(MEASURED):
        assert json.loads(found).keys() == json.loads(expected).keys()
    elif "--json" in command:
        left, right = (numbers(json.loads(said)) for said in (found, expected))
        np.testing.assert_allclose(left, right, rtol=2e-3, atol=2e-4)
