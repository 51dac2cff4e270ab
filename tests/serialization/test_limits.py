"""The limits of docs/security.md are those of the code, and every reader that names `max_bytes` has the one it says."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import minorm as mn
from minorm.data import cifar, npz
from minorm.data.pictures import decoding, picture, picture_files
from minorm.labs.judge import judging
from minorm.serialization import limits, torch_file

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/security.md").read_text()
FLAT = " ".join(PAGE.split())
UNITS = {"GiB": 1 << 30, "MiB": 1 << 20, "bytes": 1}
LIMITS = {
    ".pt of PyTorch": limits.PT, "safetensors": limits.HEADER, ".npz": limits.NPZ, "IDX": limits.IDX,
    "CIFAR-10": cifar.MOST * cifar.RECORD, "PNG, JPEG, WebP, BMP, GIF, TIFF": limits.IMAGE, "ONNX": limits.ONNX,
    "FILE.onnx of a run": limits.ONNX, "log.csv of a run": limits.LOG,
    "FILE.py of a model": limits.CODE, "submission of a lab": judging.LARGEST_FILE,
}  # fmt: skip


def rows() -> dict[str, str]:
    """Return the table's third column by the first."""
    found = re.findall(r"^\| ([^|]+?) \| [^|]+ \| ([^|]+?) \|", PAGE, re.MULTILINE)
    return {name: limit for name, limit in found if name != "File"}


def test_the_table_has_every_limit() -> None:
    assert rows().keys() == LIMITS.keys()
    for name, text in rows().items():
        number, unit = re.match(r"([\d,]+) (GiB|MiB|bytes)", text).groups()  # type: ignore[union-attr]
        assert int(number.replace(",", "")) * UNITS[unit] == LIMITS[name], name


def test_the_other_numbers() -> None:
    for number in (torch_file.MAX_PARTS, npz.MOST_CLASSES):
        assert f"{number:,}" in PAGE
    assert f"nested at most {torch_file.MAX_DEPTH} deep" in PAGE
    assert f"at most {picture_files.MOST_SCANS} scans" in PAGE
    assert f"{picture.PIXEL} bytes a pixel and {picture.ROW} a row" in PAGE
    assert f"{decoding.FACTOR} times the file's length plus {decoding.LATE >> 20} MiB" in FLAT


@pytest.mark.parametrize("text", ["512 MiB", "2 GiB", "1 GiB"])
def test_docstrings_say_the_same(text: str) -> None:
    said = {"512 MiB": (mn.data.read_image, mn.data.ImageFolder, mn.data.load_folder),
            "2 GiB": (mn.load, mn.data.load_npz), "1 GiB": (mn.data.read_idx,)}  # fmt: skip
    for function in said[text]:
        assert text in " ".join((inspect.getdoc(function) or "").split())


def test_onnx_has_the_limit_of_the_table() -> None:
    onnx = pytest.importorskip("minorm.onnx")
    assert inspect.signature(onnx.load).parameters["max_bytes"].default == limits.ONNX


def test_what_the_parts_of_an_onnx_file_count() -> None:
    pytest.importorskip("onnx")
    from minorm.onnx.graph import footprint

    parts = footprint.PARTS
    assert f"a node as {parts['NodeProto']:,} bytes and {parts['NodeProto.input']} for each input and output" in PAGE
    assert parts["NodeProto.output"] == parts["NodeProto.input"]
    assert f"an attribute as {parts['AttributeProto']}, an initializer as {parts['TensorProto']:,}" in FLAT
    assert f"{footprint.FACTOR} times the file's length plus {footprint.SPARE >> 20} MiB" in FLAT
    assert f"nest {footprint.DEEPEST} deep" in FLAT


def test_the_words_say_how_to_raise_a_limit() -> None:
    said = limits.too_large("its tensors take", 5000, 40)
    assert said == "its tensors take 5,000 bytes, more than max_bytes=40; " + limits.raised(5000)
    assert "max_bytes=5000" in limits.raised(5000)
    assert "--max-bytes 5000" in limits.raised(5000)
