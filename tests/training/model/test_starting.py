"""Starting a run from a file: heads that stay or are drawn anew, and the messages about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import models, nn
from minorm.data import ArrayDataset
from minorm.training import Run, Settings, choose_settings
from minorm.training.data.preparing import Preprocessing
from minorm.training.model import starting
from minorm.training.model.onnx_graph import Graph
from tests.training import stripes

SETTINGS = Settings(data="numpy", model="digits", epochs=1, batch_size=10, mean="0.4", std="0.2")


def sets(classes: int = 4) -> Any:
    rng = np.random.default_rng(classes)
    return tuple(ArrayDataset(rng.random((n, 1, 8, 8), np.float32), np.arange(n) % classes) for n in (20, 20))


def of_names(names: list[str]) -> Preprocessing:
    return Preprocessing(names, [0.4], [0.2], 8, 1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the folder of a run with four classes called 0 to 3."""
    out = str(tmp_path_factory.mktemp("run"))
    Run(SETTINGS, out, sets=sets()).fit()
    return out


@pytest.mark.parametrize(
    ("names", "new_head", "stays", "said"),
    [
        (["0", "1", "2", "3"], False, True, "the head is kept, because the classes are the same; --new-head"),
        (["0", "1", "2", "3"], True, False, "the head is initialized anew, because new_head is set"),
        (["0", "1", "2", "x"], False, False, "the head is initialized anew, because the file has the class '3'"),
    ],
)  # fmt: skip
def test_the_head_of_a_run(run: str, names: list[str], new_head: bool, stays: bool, said: str) -> None:
    settings = Settings(model="digits", new_head=new_head)
    model, found = models.digits_cnn(classes=4), of_names(names)
    layers = starting.layers_of(settings, model, found, run)
    begun = starting.begin(settings, model, layers, found, None, run)
    assert begun is not None
    assert any(sentence.startswith(said) for sentence in begun.sentences())
    kept = mn.checkpoint.load_training(f"{run}/best.safetensors")["model"]
    assert np.array_equal(model[12].weight.numpy(), np.asarray(kept["12.weight"])) == stays
    assert np.array_equal(model[0].weight.numpy(), np.asarray(kept["0.weight"]))


def test_a_file_that_names_no_classes_keeps_a_head_of_as_many(tmp_path: Path) -> None:
    path = str(tmp_path / "w.safetensors")
    mn.save(models.digits_cnn(classes=4).state_dict(), path)
    begun = Run(SETTINGS, sets=sets(), init=path).initial
    assert begun is not None
    (note,) = begun.notes
    assert note.startswith("the head is kept, because it has the same number of classes; the file has no class names;")
    other = Run(SETTINGS, sets=sets(5), init=path).initial
    assert other is not None
    assert other.notes == []
    assert [entry.split(" ")[0] for entry in other.reshaped] == ["12.weight", "12.bias"]


def test_a_setting_that_needs_the_head_of_a_model_without_one(tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text("from minorm import nn\n"
                    "def build(c, s, k): return nn.Sequential(nn.Conv2d(c, k, s), nn.Flatten())\n")  # fmt: skip
    for name, value in (("freeze", 1), ("layer_decay", 0.5)):
        settings = Settings(data="numpy", model=f"{file}:build", epochs=1, batch_size=10, **{name: value})
        with pytest.raises(ValueError, match=f"{name}={value} needs a head, but the model has none"):
            Run(settings, sets=sets())


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the path of an ONNX file that knows its four classes and its scaling, and ends with a Softmax."""
    onnx = pytest.importorskip("minorm.onnx")
    path = tmp_path_factory.mktemp("graph") / "net.onnx"
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4),
                            nn.Softmax(1))  # fmt: skip
    model = onnx.load(onnx.export(network, mn.zeros(1, 1, 8, 8)))
    model.metadata |= {"classes": ["0", "1", "2", "3"],
                       "preprocessing": {"mean": [0.25], "std": [0.5], "size": 8, "channels": 1}}  # fmt: skip
    onnx.export(model, None, path)
    return str(path)


@pytest.mark.parametrize(("names", "new_head", "stays"), [("0123", False, True), ("0123", True, False),
                                                          ("0124", False, False), ("01234", False, False)])  # fmt: skip
def test_the_head_of_a_graph(graph: str, names: str, new_head: bool, stays: bool) -> None:
    settings = Settings(model=graph, new_head=new_head)
    assert starting.keeps_head(settings, Graph.read(graph), of_names(list(names))) == stays


def test_a_run_of_a_graph_says_what_was_changed(graph: str) -> None:
    run = Run(Settings(data="numpy", model=graph, epochs=1, batch_size=10), sets=sets(), init=graph)
    assert run.initial is not None
    assert run.initial.sentences() == [
        "begins with 4 tensors of net.onnx",
        "the head '4', a Gemm of 4 numbers, is kept, because the classes are the same; --new-head initializes it anew",
        "its Softmax is left out, because the loss takes logits",
    ]
    assert run.model_facts["keeps_head"] is True
    anew = Run(Settings(data="numpy", model=graph, epochs=1, batch_size=10), sets=sets(5))
    assert anew.initial is not None
    assert anew.initial.taken == 2
    assert anew.initial.notes[0] == "the head '4', a Gemm of 4 numbers for 4 classes, is initialized anew"


def test_a_folder_is_read_as_the_file_says(graph: str, tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    stripes.write(tmp_path / "pictures", stripes.OTHERS, 4, 2, seed=0)
    settings, _, found = choose_settings(tmp_path / "pictures", init=graph, data="folder", epochs=1)
    assert (settings.model, settings.image_size, settings.mean, settings.std) == (graph, 8, "0.25", "0.5")
    run = Run(settings, sets=found, init=graph)
    assert run.preprocessing == Preprocessing(sorted(stripes.OTHERS), [0.25], [0.5], 8, 1)
    assert found[0][0][0].shape == (1, 8, 8)
    assert choose_settings(tmp_path / "pictures", init=graph, data="folder", image_size=10).settings.image_size == 10


def test_weights_of_an_onnx_file_by_name(tmp_path: Path) -> None:
    onnx = pytest.importorskip("minorm.onnx")
    network = models.digits_cnn(classes=7)
    onnx.export(network, mn.zeros(1, 1, 8, 8), tmp_path / "net.onnx", training=True)
    run = Run(SETTINGS, sets=sets(), init=str(tmp_path / "net.onnx"))
    assert np.array_equal(run.model[0].weight.numpy(), network[0].weight.numpy())
    assert run.model[12].weight.shape == (4, 256)
