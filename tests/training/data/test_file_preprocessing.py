"""Read classes and scaling from an ONNX file: one of minorm, one of Ultralytics, and others."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from minorm.training.data import file_preprocessing
from minorm.training.data.preparing import Preprocessing

SCALING = {"mean": [0.5], "std": [0.25], "size": 32, "channels": 1}


def model_of(shape: Any, **metadata: Any) -> Any:
    return SimpleNamespace(inputs=[SimpleNamespace(shape=shape)], metadata=metadata)


def test_what_export_writes_is_read() -> None:
    metadata = {"classes": json.dumps(["cat", "dög"]), "preprocessing": json.dumps(SCALING)}
    assert file_preprocessing.read(metadata) == Preprocessing(["cat", "dög"], [0.5], [0.25], 32, 1)


@pytest.mark.parametrize(
    "changed",
    [{"size": 0}, {"size": "32"}, {"size": 10**9}, {"channels": 2}, {"mean": [0.5, 0.5]}, {"std": [0.0]}, {"more": 1}],
)
def test_what_does_not_fit_is_not_read(changed: dict[str, Any]) -> None:
    assert file_preprocessing.read({"classes": "[]", "preprocessing": json.dumps({**SCALING, **changed})}) is None
    assert file_preprocessing.read({"classes": "[" * 100_000, "preprocessing": "{}"}) is None
    assert file_preprocessing.read({}) is None


def test_an_input_says_size_and_channels() -> None:
    found = file_preprocessing.of_input(model_of(("n", 3, 64, 64), classes='["a", "b"]'))
    assert found == Preprocessing(["a", "b"], [0.0] * 3, [1.0] * 3, 64, 3)
    for shape in (None, (1, 3, 64), (1, 3, 64, 32), (1, 4, 64, 64), (1, 3, "h", 64), (1, 3, "h", "w"), (1, 3, 0, 0)):
        assert file_preprocessing.of_input(model_of(shape)) is None


def test_ultralytics_names_and_sizes_are_read() -> None:
    found = file_preprocessing.of_input(model_of((1, 3, "h", "w"), names="{0: 'cat', 1: \"it's\"}", imgsz="[224, 224]"))
    assert found == Preprocessing(["cat", "it's"], [0.0] * 3, [1.0] * 3, 224, 3)
    fixed = file_preprocessing.of_input(model_of((1, 3, 64, 64), names="{0: 'cat'}", imgsz="[224, 224]"))
    assert fixed is not None
    assert fixed.size == 64  # what the graph takes


@pytest.mark.parametrize(
    "text",
    ["{0: 'a', 2: 'b'}", "{0: 1}", "__import__('os').getcwd()", "{" * 10_000, "{0: 'a'", "3", "'cat'", "{'a': 0}", None,
     "[" * 200_000, "{0: 'a'}" + " " * (2 << 20)],
)  # fmt: skip
def test_other_names_are_numbers(text: Any) -> None:
    assert file_preprocessing.classes({"names": text}) == []
    assert file_preprocessing.of_input(model_of((1, 3, "h", "w"), imgsz=text)) is None


def test_classes_come_before_names() -> None:
    assert file_preprocessing.classes({"classes": '["a"]', "names": "{0: 'b'}"}) == ["a"]
    for value in (3, "3", '{"a": 1}', "[1]", "no"):
        assert file_preprocessing.classes({"classes": value}) == []
