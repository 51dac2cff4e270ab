"""What an ONNX file's metadata says of classes and scaling is read back as `minorm export` wrote it, or not at all."""

from __future__ import annotations

import pytest

from minorm.cli import sources
from minorm.training.data import declared
from minorm.training.data.preparing import Preprocessing


def test_classes_and_scaling_travel_in_metadata() -> None:
    found = Preprocessing(["chat", "été"], [0.5, 0.4, 0.3], [0.2, 0.2, 0.1], 48, 3)
    metadata = sources.description(found)
    assert declared.read(metadata) == found
    for changed in (
        {}, {"classes": "[1, 2]"}, {"classes": "no JSON"}, {"preprocessing": "[]"},
        {"preprocessing": metadata["preprocessing"].replace("48", "-1")},
        {"preprocessing": metadata["preprocessing"].replace("48", "1e9")},
        {"preprocessing": metadata["preprocessing"].replace("48", "1000000")},
        {"preprocessing": metadata["preprocessing"].replace("0.2, 0.2", "0.2")},
        {"preprocessing": metadata["preprocessing"].replace("0.1", "0")},
        {"preprocessing": metadata["preprocessing"].replace("size", "side")},
    ):  # fmt: skip
        assert declared.read({**metadata, **changed} if changed else {}) is None, changed


@pytest.mark.parametrize("text", ["cat, dog", "[1, 2]", "[" * 100_000, "{}"])
def test_classes_that_are_no_list_of_names(text: str) -> None:
    assert declared.classes({"classes": text}) == []
    assert declared.classes({"classes": '["a", "b"]'}) == ["a", "b"]
