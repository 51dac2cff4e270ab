"""docs/ shows the tables, pictures and code that the programs beside it give."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import minorm as mn

ROOT = Path(__file__).resolve().parents[2]
IMPORTS = "import numpy as np\nimport minorm as mn\nimport minorm.functional as F\nfrom minorm import nn\n"


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_the_padded_encoder_gives_a_sequence_the_same_result_alone() -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```$", page("masked.md"), re.DOTALL | re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS + program], check=True, cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout == "0.0\n"
    unmasked = re.sub(r"(self\.norm\d\(self\.conv\d\(x\)), mask\)", r"\1)", program)
    assert unmasked != program
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS + unmasked], check=True, cwd=ROOT, capture_output=True, text=True
    )
    assert float(done.stdout) > 0.05


def test_the_tables_of_padding() -> None:
    pytest.importorskip("matplotlib")
    from benchmarks import padding

    assert padding.statistics_table() in page("masked.md")
    for norm in padding.NORMS:
        numbers = [f"{padding.change(norm, length, masked=False):.2g}" for length in (24, 40, 200)]
        assert f"| {norm} | {' | '.join(numbers)} | " in page("masked.md")
        assert padding.change(norm, 200, masked=True) < 5e-6


@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: str(path.relative_to(ROOT)))
def test_pictures_are_there_and_small(path: Path) -> None:
    for picture in re.findall(r"!\[[^\]]+\]\((?!figures/)([^)]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / picture).stat().st_size < 100_000, picture


def test_the_program_of_the_batch_sizes() -> None:
    for package in ("matplotlib", "sklearn"):
        pytest.importorskip(package)
    from benchmarks import batch_sizes

    titles = re.findall(r"^\*\*(.+?)\.\*\*", page("which-normalization.md"), re.MULTILINE)
    assert titles == list(batch_sizes.NETWORKS)
    for network, choices in batch_sizes.NETWORKS.values():
        mn.manual_seed(0)
        assert batch_sizes.test_error(network(choices["Group"]), 64, epochs=1, seed=0) < 10
    errors = {name: {size: [1.0, 2.0, 9.0] for size in batch_sizes.SIZES} for name in batch_sizes.LINES}
    assert batch_sizes.table(errors).splitlines()[2] == "| 2 | 2.0 | 2.0 | 2.0 | 2.0 | 2.0 |"
    figure = batch_sizes.picture(dict.fromkeys(batch_sizes.NETWORKS, errors))
    assert [len(axes.lines) for axes in figure.axes] == [5, 5]


def test_the_charts_of_the_speed_show_its_tables() -> None:
    from benchmarks import charts

    for name, picture in charts.charts(page("benchmarks.md")).items():
        assert f"](images/{name})" in page("benchmarks.md")
        written = (ROOT / "docs" / "images" / name).read_text(encoding="utf-8")
        assert written == picture, "the tables changed: python -m benchmarks.charts"
        assert len(picture) < 10_000
    with pytest.raises(ValueError, match="no table in 'A training step' has a column 'best'"):
        charts.charts(page("benchmarks.md").replace("| best |", "| ratio |"))


def totals(runtime: str) -> dict[str, int]:
    """How many cells of docs/conformance.md's table of versions are right, wrong and unsupported."""
    table = re.search(r"^\| operator \|.+?\n\n", page("conformance.md"), re.DOTALL | re.MULTILINE)
    assert table
    head, _, *rows = table[0].split("\n")
    column = [cell.strip() for cell in head.split("|")].index(runtime)
    cells = [row.split("|")[column] for row in rows if row]
    return {
        verdict: sum(int(n) for cell in cells for n in re.findall(rf"(\d+) {verdict}", cell))
        for verdict in ("right", "wrong", "unsupported")
    }


def test_the_readmes_first_screen_has_the_figures_of_the_pages() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    screen = " ".join(readme.splitlines()[:21])
    speedup = {
        row[0]: row[5].strip("*")
        for line in page("benchmarks.md").partition("## A training step\n")[2].partition("\n## ")[0].splitlines()
        if len(row := [cell.strip() for cell in line.strip("|").split("|")]) == 9
    }
    lenet = speedup["LeNet with BatchNorm, 28x28"]
    assert f"a training step is {lenet} times as fast as in PyTorch for a LeNet with BatchNorm" in screen
    assert f"{speedup['digits CNN, 8x8']} times for a CNN on 8x8 digits" in screen
    assert f"{speedup['ResNet-20, 32x32']} times for a ResNet-20" in screen
    ours, theirs, onnxruntime = (totals(name) for name in ("minorm", "PyTorch", "onnxruntime"))
    assert ours["wrong"] == ours["unsupported"] == 0
    assert f"minorm is right in all {ours['right']} cases" in screen
    assert f"PyTorch is right in {theirs['right']} and wrong in {theirs['wrong']}" in screen
    assert f"onnxruntime is right in {onnxruntime['right']} and wrong in {onnxruntime['wrong']}" in screen
    assert sum(theirs.values()) == sum(onnxruntime.values()) == ours["right"]
    ((passed, total),) = re.findall(r"^(\d+) of (\d+) node tests of onnx ", page("onnx.md"), re.MULTILINE)
    assert f"{passed} of onnx's {total} node tests pass" in screen
    steps = gpu_steps("1024")
    float32, bfloat16, eager = steps["float32"], steps["bfloat16"], gpu_steps("128")["bfloat16"]
    assert f"takes {float32[1]} ms in minorm and {float32[3]} ms in PyTorch" in screen
    assert f"In bfloat16 it takes {bfloat16[1]} ms in minorm and {bfloat16[3]} ms in PyTorch" in screen
    step = f"such a step takes {eager[2]} ms in PyTorch and {eager[0]} ms in minorm"
    assert f"with batch 128 in bfloat16, {step}" in screen
    assert all(float(row[1]) < float(row[3]) for row in steps.values())
    assert float(eager[2]) < float(eager[0])


def gpu_steps(batch: str) -> dict[str, list[str]]:
    """The milliseconds of a step of ResNet-20, by type."""
    table = page("benchmarks.md").partition("### Training steps on a GPU\n")[2].partition("\n### ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return {row[2]: row[3:] for row in rows if row[:2] == ["ResNet-20", batch]}
