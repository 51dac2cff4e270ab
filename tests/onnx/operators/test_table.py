"""docs/onnx-operators.md holds the table that the registry gives."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnx")

from minorm.onnx.graph.versions import PUBLISHED
from minorm.onnx.operators import table

PAGE = Path(__file__).parents[3] / "docs" / "onnx-operators.md"


def test_the_page_is_up_to_date() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert table.page(text) == text, "python -m minorm.onnx.operators.table docs/onnx-operators.md"


def test_operators_are_read_in_every_version() -> None:
    assert table.unread() == {}


def test_the_table_names_an_operator_with_its_versions() -> None:
    read = ", ".join(map(str, PUBLISHED["Softmax"]))
    lines = table.table().splitlines()
    assert f"| Softmax | {read} | input | {read} |" in lines
    assert any(line.startswith("| com.microsoft: BiasGelu, ") for line in lines)


def test_the_table_names_the_inputs_that_a_gradient_reaches() -> None:
    assert table.gradients("Conv") == ["X", "W", "B"]
    assert table.gradients("DeformConv") == ["X", "W", "offset", "B", "mask"]
    assert table.gradients("Clip") == ["input"]
    assert table.gradients("Where") == ["X", "Y"]
    assert table.gradients("Floor") == table.gradients("Shape") == table.gradients("MatMulInteger") == []


def test_main_changes_the_table_alone(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text(f"above\n{table.BEGIN}\nold\n{table.END}\nbelow\n", encoding="utf-8")
    table.main(str(file))
    assert file.read_text(encoding="utf-8") == f"above\n{table.BEGIN}\n\n{table.table()}\n\n{table.END}\nbelow\n"
    with pytest.raises(ValueError, match="lacks the marks"):
        table.page("nothing")
