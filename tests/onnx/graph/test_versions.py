from __future__ import annotations

import re
from pathlib import Path

import pytest

onnx = pytest.importorskip("onnx")

from minorm.onnx.graph import registry, versions  # noqa: E402

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("operator", sorted(versions.PUBLISHED))
def test_every_operator_resolves_as_the_onnx_package_says_at_every_opset(operator: str) -> None:
    for opset in range(1, min(versions.NEWEST, onnx.defs.onnx_opset_version()) + 1):
        try:
            expected = onnx.defs.get_schema(operator, opset, "").since_version
        except onnx.defs.SchemaError:
            with pytest.raises(LookupError, match=f"{operator} exists from opset"):
                versions.resolve(operator, opset)
            assert not versions.exists(operator, opset)
        else:
            assert versions.resolve(operator, opset) == expected
            assert versions.exists(operator, opset)


def test_the_table_knows_the_newest_opset_of_this_onnx_package() -> None:
    newest = onnx.defs.onnx_opset_version()
    if newest > versions.NEWEST:
        pytest.skip(f"the onnx package knows opset {newest}: add its versions to minorm/onnx/versions.py")


def test_every_operator_named_by_a_rule_is_in_the_table() -> None:
    for rules in registry.WRITERS.values():
        for rule in rules:
            if rule.operator is not None:
                since = rule.since if isinstance(rule.since, tuple) else (rule.since,)
                assert set(since) <= set(versions.PUBLISHED[rule.operator])


def test_an_operator_nobody_published_is_named() -> None:
    with pytest.raises(LookupError, match="minorm does not have the operator Frobnicate"):
        versions.resolve("Frobnicate", 15)


def test_ir_versions_are_those_of_the_onnx_package() -> None:
    for opset in range(7, min(versions.NEWEST, onnx.defs.onnx_opset_version()) + 1):
        least = onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", opset)])
        assert versions.ir_version(opset) == max(4, least)


def test_this_onnxruntime_runs_the_opsets_that_export_chooses() -> None:
    """The oldest one that we allow runs them up to GroupNorm's, those from 1.25 on all of them."""
    onnxruntime = pytest.importorskip("onnxruntime")
    import minorm as mn
    import minorm.onnx as mo
    from minorm import nn
    from minorm.onnx.checking import verification

    runs = {
        opset
        for opset in range(7, min(versions.NEWEST, onnx.defs.onnx_opset_version()) + 1)
        if not isinstance(verification.start(mo.export(nn.ReLU(), mn.ones(1, 2), None, opset_version=opset)), str)
    }
    assert runs >= set(range(7, 22))
    release = tuple(map(int, onnxruntime.__version__.split(".")[:2]))
    assert release < (1, 25) or runs >= set(versions.DEFAULTS)
    [oldest] = re.findall(r"onnxruntime>=([\d.]+)", (REPOSITORY / "pyproject.toml").read_text())
    assert oldest == "1.20"  # where this was tried
