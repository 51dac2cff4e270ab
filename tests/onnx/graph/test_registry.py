from __future__ import annotations

import pytest

pytest.importorskip("onnx")

import onnx

import minorm.functional as F
from minorm.onnx.graph import registry


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "WRITERS", {})
    monkeypatch.setattr(registry, "READERS", {})
    monkeypatch.setattr(registry, "_READ", {})


def test_the_rule_of_the_version_in_force_is_found(empty: None) -> None:
    @registry.lowers("target")
    def lower() -> None: ...

    @registry.writes("target", "BatchNormalization", since=14)
    def new() -> None: ...

    @registry.writes("target", "BatchNormalization", since=7)
    def old() -> None: ...

    assert registry.writers("target", 7) == [old, lower]
    assert registry.writers("target", 13) == [old, lower]
    assert registry.writers("target", 14) == [new, lower]
    assert registry.writers("target", 28) == [new, lower]
    assert registry.writers("another", 28) == []


def test_an_operator_the_opset_does_not_have_yet_is_named(empty: None) -> None:
    @registry.writes("target", "Gelu", since=20)
    def new() -> None: ...

    assert registry.writers("target", 19) == []
    assert registry.absent("target", 19) == ["it is Gelu of opset 20 on; the model's opset is 19"]


def test_a_version_that_was_never_published_is_refused(empty: None) -> None:
    with pytest.raises(ValueError, match=r"Gelu: \[21\] are not since-versions"):
        registry.writes("target", "Gelu", since=21)
    with pytest.raises(ValueError, match=r"Gelu: \[21\] are not since-versions"):
        registry.writes("target", "Gelu", since=(20, 21))


def test_readers_are_found_by_the_opset_of_the_model(empty: None) -> None:
    @registry.reads("BatchNormalization", since=14)
    def read_14() -> None: ...

    assert registry.reader("BatchNormalization", 20).rule is read_14
    with pytest.raises(LookupError, match="minorm does not have version 9 of the operator BatchNormalization"):
        registry.reader("BatchNormalization", 13)
    with pytest.raises(ValueError, match="has a reader already"):
        registry.reads("BatchNormalization", since=14)(read_14)


@pytest.mark.parametrize("order", [(1, 7, 14), (14, 7, 1), (7, 14, 1)])
def test_a_rule_counts_until_the_next_that_is_written(empty: None, order: tuple[int, ...]) -> None:
    rules = {since: type(f"Rule{since}", (), {}) for since in order}
    for since in order:
        registry.reads("BatchNormalization", since=since)(rules[since])
        registry.writes("target", "BatchNormalization", since=since)(rules[since])
    for opset in range(1, 29):
        version = onnx.defs.get_schema("BatchNormalization", min(opset, onnx.defs.onnx_opset_version())).since_version
        expected = rules[max(since for since in order if since <= version)]
        assert registry.reader("BatchNormalization", opset).rule is expected
        assert registry.writers("target", opset) == [expected]


def test_a_tuple_stands_for_just_these_versions(empty: None) -> None:
    @registry.writes("target", "Tile", since=(6,))
    def write_6() -> None: ...

    assert registry.writers("target", 12) == [write_6]
    assert registry.writers("target", 13) == []


def test_without_a_version_a_rule_counts_for_all(empty: None) -> None:
    @registry.reads("Abs")
    def read() -> None: ...

    assert {registry.reader("Abs", opset).rule for opset in range(1, 29)} == {read}


# Where the rule that reads an operator changes; the others have one rule for all their versions.
CHANGES = {
    "Clip": (1, 11), "DFT": (17, 20), "Dropout": (1, 7, 12), "Pad": (1, 11), "Reshape": (1, 5), "Resize": (10, 11),
    "Scan": (8, 9), "Slice": (1, 10), "Tile": (1, 6), "TopK": (1, 10), "Upsample": (1, 7, 9),
}  # fmt: skip


def test_every_operator_is_read_at_every_opset_that_has_it() -> None:
    """Which version that is, `onnx.defs` says: each has the rule of the newest change at or before it."""
    import minorm.onnx  # noqa: F401  all rules

    operators = {operator for operator, _ in registry.READERS}
    assert len(operators) >= 150
    for operator in sorted(operators):
        rules: dict[int, object] = {}
        for opset in range(1, onnx.defs.onnx_opset_version() + 1):
            try:
                version = onnx.defs.get_schema(operator, opset, "").since_version
            except onnx.defs.SchemaError:
                with pytest.raises(LookupError):
                    registry.reader(operator, opset)
                continue
            changes = CHANGES.get(operator, (version if not rules else min(rules),))
            begin = max(change for change in changes if change <= version)
            assert registry.reader(operator, opset).rule is rules.setdefault(
                begin, registry.reader(operator, opset).rule
            )
        assert len(set(rules.values())) == len(CHANGES.get(operator, (1,))), operator


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
