from __future__ import annotations

import pytest

pytest.importorskip("onnx")

import minorm.functional as F
from minorm.onnx.graph import registry


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "WRITERS", {})
    monkeypatch.setattr(registry, "READERS", {})


def test_the_rule_of_the_version_in_force_is_found(empty: None) -> None:
    @registry.lowers("target")
    def lower() -> None: ...

    @registry.writes("target", "BatchNormalization", since=(14, 15))
    def new() -> None: ...

    @registry.writes("target", "BatchNormalization", since=(7, 9))
    def old() -> None: ...

    assert registry.writers("target", 7) == [old, lower]
    assert registry.writers("target", 13) == [old, lower]
    assert registry.writers("target", 14) == [new, lower]
    assert registry.writers("target", 28) == [new, lower]
    assert registry.writers("another", 28) == []


def test_an_operator_the_opset_does_not_have_yet_is_named(empty: None) -> None:
    @registry.writes("target", "Gelu", since=(20,))
    def new() -> None: ...

    assert registry.writers("target", 19) == []
    assert registry.absent("target", 19) == ["it is Gelu of opset 20 on; the model's opset is 19"]


def test_a_version_that_was_never_published_is_refused(empty: None) -> None:
    with pytest.raises(ValueError, match=r"Gelu: \[21\] are no since-versions"):
        registry.writes("target", "Gelu", since=(20, 21))


def test_readers_are_found_by_the_opset_of_the_model(empty: None) -> None:
    @registry.reads("BatchNormalization", since=(14, 15))
    def read_14() -> None: ...

    assert registry.reader("BatchNormalization", 20).rule is read_14
    with pytest.raises(LookupError, match="minorm does not have version 9 of the operator BatchNormalization"):
        registry.reader("BatchNormalization", 13)
    with pytest.raises(ValueError, match="has a reader already"):
        registry.reads("BatchNormalization", since=(15,))(read_14)


def test_every_public_function_has_a_rule_or_is_made_of_some() -> None:
    written_through_their_functions = {
        *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        *("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d"),
        *("log_softmax", "relu", "sigmoid", "softmax", "tanh"),  # which are methods of a Tensor as well
    }
    for name in vars(F):  # what is loaded later is made of these: tests/onnx/exporting/test_layers.py
        function = getattr(F, name)
        if callable(function) and hasattr(function, "__wrapped__") and name not in written_through_their_functions:
            assert function in registry.WRITERS, name
