"""Every command, with names that would steer a terminal, forge a line or a page, or are not UTF-8.

A command has to end with the exit code that it has for harmless names, and nothing but printable letters and our own
line breaks may come out. A new command fails here until `COMMANDS` has a line for it.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import minorm as mn
from minorm import cli, nn
from minorm.cli.terminal import output
from tests.cli.test_main import parsers

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).resolve().parents[2]
# In this order: the terminal's title, a colour, a cursor movement in one byte, letters that run from right to left, a
# letter without a width. Then markup of rich, of matplotlib and of a page, a way out of an attribute, a formula, and a
# line of output.
NAME = "\x1b]0;pwn\x07\x1b[31m\x9b2J\u202e\u200b[red]$x^{$<i id=pwn>\" onload='=1+1\nFORGED line\r\t"
FILE = f"{NAME}\udcfc"  # in a file's name a byte that is not UTF-8 as well
MODEL = """
from minorm import nn

def build(channels, size, classes):
    return nn.Sequential(nn.Conv2d(channels, 4, 3, stride=4), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, classes))
"""
LAB = ROOT / "examples" / "labs" / "solutions" / "lab00_axes.py"
FOLDER = ["--data", "folder", "--epochs", "1", "--image-size", "32", "--batch-size", "4"]
WHEEL = "minorm_nn-1-py3.whl"
OWN_LABS = ROOT / "examples" / "own_labs"


class World:
    """A folder with all files that commands read; `name` and `file` are the hostile ends of names and of file names."""

    def __init__(self, root: Path, name: str, file: str) -> None:
        self.root, self.name, self.file = root, name, file

    def path(self, stem: str, ending: str = "") -> str:
        return str(self.root / f"{stem}{self.file}{ending}")

    @property
    def images(self) -> str:
        """Write a folder of two classes; one class has a broken picture."""
        from PIL import Image

        folder = self.path("images")
        if not os.path.exists(folder):
            for label in ("cat", "dog"):
                os.makedirs(os.path.join(folder, f"{label}{self.file}"))
                for number in range(6):
                    pixels = np.random.default_rng(number).integers(0, 255, (12, 12, 3)).astype(np.uint8)
                    Image.fromarray(pixels).save(self.picture(label, number))
            Path(self.picture("cat", 6)).write_bytes(b"none")
        return folder

    def picture(self, label: str, number: int) -> str:
        return os.path.join(self.path("images"), f"{label}{self.file}", f"{number}{self.file}.png")

    @property
    def run(self) -> str:
        """Return the folder of a finished run, whose model comes from a file."""
        folder = self.path("run")
        if not os.path.exists(folder):
            Path(self.path("model", ".py")).write_text(MODEL)
            words = ["--data", "folder", "--path", self.images, "--image-size", "16", "--batch-size", "4"]
            model = f"{self.path('model', '.py')}:build"
            assert cli.main(["train", *words, "--epochs", "1", "--model", model, "-o", folder]) == 0
        return folder

    @property
    def onnx(self) -> str:
        """Write an ONNX model that normalizes images of the digits' size."""
        return self.model("m", "Relu")

    def model(self, stem: str, last: str) -> str:
        from onnx import TensorProto, helper, numpy_helper, save

        path, name = self.path(stem, ".onnx"), self.name
        nodes = [
            helper.make_node("BatchNormalization", [f"x{name}", *[f"w{name}"] * 4], [f"h{name}"], name=f"bn{name}"),
            helper.make_node(last, [f"h{name}"], [f"p{name}"], name=f"last{name}"),
            helper.make_node("Flatten", [f"p{name}"], [f"y{name}"]),
        ]
        weights = [numpy_helper.from_array(np.ones(1, np.float32), f"w{name}")]
        x = helper.make_tensor_value_info(f"x{name}", TensorProto.FLOAT, [f"n{name}", 1, 8, 8])
        y = helper.make_tensor_value_info(f"y{name}", TensorProto.FLOAT, [f"n{name}", 64])
        graph = helper.make_graph(nodes, f"g{name}", [x], [y], weights)
        model = helper.make_model(graph, producer_name=f"p{name}", opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 9
        if not os.path.exists(path):
            with open(path, "wb") as file:
                save(model, file)
        return path

    @property
    def students(self) -> str:
        """Write the submissions of a class; one student has handed in a picture."""
        folder = self.path("students")
        if not os.path.exists(folder):
            for student in ("anna", "zoe"):
                os.makedirs(os.path.join(folder, f"{student}{self.file}"))
                shutil.copy(LAB, os.path.join(folder, f"{student}{self.file}", f"{LAB.stem}{self.file}.py"))
            Path(folder, f"bob{self.file}.png").write_bytes(b"")
        return folder

    @property
    def labs(self) -> str:
        """Copy a teacher's own labs."""
        folder = self.path("own")
        if not os.path.exists(folder):
            shutil.copytree(OWN_LABS, folder)
        return folder

    @property
    def submission(self) -> str:
        path = self.path("lab", ".py")
        Path(path).write_text(f"raise ValueError({self.name!r})\n")
        return path

    @property
    def wheel(self) -> str:
        path = self.path("minorm_nn-1-", ".whl")
        for one in (Path(path), self.root / WHEEL):
            one.write_bytes(b"")
        return path


# The calls of each command, with the exit code that it has where names are harmless.
COMMANDS: dict[str, Callable[[World], list[tuple[int, list[str]]]]] = {
    "demo": lambda w: [(1, ["--epochs", "1", "--seeds", "1", "-o", w.path("demo")])],  # too few for the accuracy
    "train": lambda w: [
        (0, [*FOLDER, "--path", w.images, "--model", "lenet", "-o", w.path("trained")]),
        (0, ["--resume", "--trust", "-o", w.run, "--path", w.images]),
        (1, ["--resume", "-o", w.path("nowhere")]),
        (1, ["--data", "folder", "--path", w.path("nowhere")]),
        (1, ["--data", "folder", "--path", w.images, "--model", f"{w.path('nowhere', '.py')}:build"]),
        (2, ["--config", w.submission]),
    ],
    "lr-find": lambda w: [
        (0, [*FOLDER, "--path", w.images, "--model", "lenet", "--steps", "12", "-o", w.path("rates", ".csv")]),
        (1, ["--data", "folder", "--path", w.path("nowhere")]),
        (1, ["--data", "folder", "--path", w.images, "--model", f"{w.path('nowhere', '.py')}:build"]),
    ],
    "profile": lambda w: [
        (0, [w.run, "--trust", "--steps", "1", "-o", w.path("trace", ".json")]),
        (1, [w.path("nowhere")]),
        (1, [w.submission]),
    ],
    "evaluate": lambda w: [
        (0, [w.run, "--trust", "--path", w.images]),
        (2, [w.run, "--path", w.images]),
        (0, [w.run, "--trust", "--path", w.images, "--json"]),
        (0, [w.onnx, "--data", "digits"]),
        (1, [w.path("nowhere")]),
    ],
    "predict": lambda w: (
        [
            (1, [w.run, "--trust", w.images and w.picture("cat", 0), w.picture("cat", 6), w.path("nowhere"), *form])
            for form in (
                [],
                ["--json"],
                ["--csv"],
                ["--csv", w.path("table", ".csv")],
                ["--html", w.path("seen", ".html")],
            )
        ]
        + [(1, [w.run, "--trust", w.images, "--top-k", "2"]), (1, [w.run, "--trust", w.students])]
    ),
    "plot": lambda w: [
        (0, [w.run]),
        (0, [w.run, "-o", w.path("curves", ".svg")]),
        (1, [w.run, "-o", w.path("curves.")]),
    ],
    "doctor": lambda w: [
        (0, [w.run, "--trust", "--path", w.images, "--plot", w.path("doctor", ".svg")]),
        (0, [w.run, "--trust", "--path", w.images, "--fix", "freeze", "-o", w.path("frozen", ".safetensors")]),
        (0, [w.onnx, "--data", "digits", "--fix", "freeze", "-o", w.path("frozen", ".onnx")]),
        (0, [w.onnx, "--data", "digits", "--json"]),
    ],
    "export": lambda w: [
        (0, [w.run, "--trust", "-o", w.path("exported", ".onnx")]),
        (1, [w.onnx]),
        (1, [w.run, "--trust", "-o", os.path.join(w.path("nowhere"), "m.onnx")]),
    ],
    "check": lambda w: [
        (0, [w.onnx, "-o", w.path("page", ".html")]),
        (0, [w.onnx, "--json"]),
        (1, [w.onnx, "--shape", f"zz{w.file}=1"]),
        (1, [w.model("no", "Strange"), "--brief", "-o", w.path("no", ".html")]),
    ],
    "convert": lambda w: [
        (0, [w.onnx, "--opset", "13", "-o", w.path("c", ".onnx")]),
        (1, [w.model("no", "Strange"), "--opset", "13"]),
        (1, [w.submission, "--opset", "13"]),
    ],
    "quantize": lambda w: [
        (0, [w.run, "--trust", "--calibrate", w.images, "--images", "8", "-o", w.path("int8", ".onnx")]),
        (1, [w.run, "--trust", "--calibrate", w.path("nowhere")]),
        (1, [w.run, "--trust", "--calibrate", w.images, "--exclude", w.file, "-o", w.path("int8", ".onnx")]),
        (1, [w.submission]),
    ],
    "conform": lambda w: [
        (2, ["--runtime", w.file]),
        (0, [w.onnx, "--runtime", "minorm"]),
        (0, [w.onnx, "--runtime", "minorm", "--json"]),
        (1, [w.submission]),
        (1, [w.model("no", "Strange")]),
    ],
    "labs list": lambda w: [(0, ["--lab-dir", w.labs]), (1, ["--lab-dir", w.path("nowhere")])],
    "labs start": lambda w: [(0, ["0", "-o", w.path("work")]), (1, ["0", "-o", w.submission])],
    "labs check": lambda w: [
        (1, ["0", w.submission]),
        (1, ["20", w.submission, "--json", "--lab-dir", w.labs]),
        (1, ["0", w.path("nowhere", ".py")]),
    ],
    "labs grade": lambda w: [
        (0, ["0", w.students, "-o", w.path("grades", ".csv"), "--reports", w.path("reports"), "--patience", "4"]),
        (1, ["0", w.path("nowhere")]),
    ],
    "labs gradescope": lambda w: [
        (1, ["0", "--wheel", w.wheel, "-o", w.path("lab", ".zip")]),
        (0, ["20", "--wheel", str(w.root / WHEEL), "-o", w.path("own", ".zip"), "--lab-dir", w.labs]),
    ],
    "completion": lambda w: [(2, [w.file])],
}
SLOW = {"demo", "convert", "labs check", "labs grade"}  # several seconds; the other tests here have their errors


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    for package in ("onnx", "onnxruntime", "PIL", "rich", "matplotlib", "sklearn"):
        pytest.importorskip(package)
    return World(tmp_path_factory.mktemp("hostile"), NAME, FILE)


def ended(words: list[str]) -> int:
    try:
        return cli.main(words)
    except SystemExit as stop:  # argparse
        return int(stop.code or 0)


def require_harmless(text: str) -> None:
    assert [c for c in text if not c.isprintable() and c != "\n"] == []
    assert not any(line.startswith("FORGED") for line in text.split("\n"))


def require_harmless_page(text: str) -> None:
    assert [c for c in text if not c.isprintable() and c != "\n"] == []
    assert "<i id=pwn" not in text
    assert '" onload' not in text


def test_every_command_is_here() -> None:
    assert COMMANDS.keys() == dict(parsers(cli._parser())).keys()


def test_what_was_given_comes_back_in_one_line(capsys: Capture) -> None:
    for name, parser in parsers(cli._parser()):
        with output.masked(), pytest.raises(SystemExit, match="2"):
            parser.error(f"there is no {FILE}")
        said = capsys.readouterr().err
        require_harmless(said)
        assert said.split("\n")[-2].startswith(f"minorm {name}: error: there is no " + r"\x1b]0;pwn\x07\x1b[31m\x9b2J")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in COMMANDS])
def test_hostile_names_come_masked_and_change_no_exit_code(
    name: str, world: World, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.root)
    commands = COMMANDS[name](world)
    require_harmless("".join(capsys.readouterr()))  # of what the folder of a run takes
    for code, words in commands:
        assert ended([*name.split(), *words]) == code
        said = capsys.readouterr()
        require_harmless(said.out)
        require_harmless(said.err)
        assert said.out or said.err
    for path in world.root.rglob("*.html"):
        require_harmless_page(path.read_text())


def test_a_class_of_a_run_is_the_folders_name_again(world: World, capsys: Capture) -> None:
    """Through the checkpoint's metadata, and out as JSON, byte for byte; a spreadsheet gets what can be read."""
    picture = world.images and world.picture("dog", 1)
    assert cli.main(["predict", world.run, "--trust", picture, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out.partition("[\n")[2].join(["[", ""]))
    assert row["file"] == picture
    assert os.path.isdir(os.path.join(world.images, row["label"]))


def test_a_spreadsheet_computes_nothing(world: World, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world.root)
    shutil.copy(world.images and world.picture("cat", 0), world.root / f"=cmd{FILE}.png")
    assert cli.main(["predict", world.run, "--trust", f"=cmd{FILE}.png", "--csv"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out[-4000:].partition("file,")[2].join(["file,", ""])))
    assert row["file"].startswith(r"'=cmd\x1b]0;pwn\x07")
    assert row["file"].endswith(r"FORGED line\r\t\xfc.png")


def test_what_the_library_says_of_a_foreign_model_is_masked_too(world: World) -> None:
    """In a notebook nothing stands between it and the reader."""
    import minorm.onnx as mo

    model = mo.load(world.onnx)
    calls: list[Callable[[], object]] = [
        model,
        lambda: model(mn.ones(1, 2, 8, 8)),
        lambda: model.load_state_dict({f"a{NAME}": mn.ones(1)}),
        lambda: model.load_state_dict({name: mn.ones(9) for name in model.state_dict()}),
        lambda: mo.load(world.model("no", "Strange")),
        lambda: mn.load(world.onnx),
    ]
    said = [repr(model), str(nn.summary(model, (1, 1, 8, 8)))]
    for call in calls:
        with pytest.raises((TypeError, ValueError)) as caught:
            call()
        said.append(str(caught.value))
    for text in said:
        require_harmless(text)
        assert r"\x1b[31m" in text
