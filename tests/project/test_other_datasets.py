"""The functions of docs/how-to/read-other-datasets.md, with the packages where they are installed, else stand-ins."""

from __future__ import annotations

import importlib.util
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn
from minorm.training import train_epoch

Image = pytest.importorskip("PIL.Image")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "read-other-datasets.md"
PIXELS = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
LABELS = [0, 1, 2, 0, 1, 2]


def functions() -> dict[str, Any]:
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        exec(block, names)
    return names


def test_the_functions_have_ten_lines_at_most() -> None:
    text = PAGE.read_text(encoding="utf-8")
    bodies = re.findall(r"^def .*\n(?:    .*\n)+", text, re.MULTILINE)
    assert len(bodies) == 3
    assert all(len(body.splitlines()) <= 10 for body in bodies)


def hugging_face_rows() -> Any:
    """A dataset in memory, as `datasets` has it; its fingerprint is given, as pickling one needs a certain pyarrow."""
    if importlib.util.find_spec("datasets") is None:
        return [{"image": Image.fromarray(x), "label": y} for x, y in zip(PIXELS, LABELS, strict=True)]
    import datasets
    import pyarrow as pa

    def encoded(pixels: Any) -> dict[str, Any]:
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "png")
        return {"bytes": file.getvalue(), "path": None}

    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b", "c"])})
    columns = {"image": [encoded(x) for x in PIXELS], "label": LABELS}
    table = datasets.table.InMemoryTable(pa.table(columns, schema=features.arrow_schema))
    return datasets.Dataset(table, info=datasets.DatasetInfo(features=features), fingerprint="tests")


def test_a_hugging_face_dataset_gives_its_pictures_and_labels() -> None:
    loader = functions()["hugging_face"](hugging_face_rows(), batch_size=4)
    found = [(images.numpy(), labels.tolist()) for images, labels in loader]
    assert [labels for _, labels in found] == [LABELS[:4], LABELS[4:]]
    images = np.concatenate([images for images, _ in found])
    np.testing.assert_allclose(images, np.moveaxis(PIXELS, -1, 1) / 255.0, rtol=1e-6)


class StandIn:
    """The used part of webdataset.WebDataset, with samples in memory."""

    def decode(self, kind: str) -> StandIn:
        assert kind == "rgb"
        return self

    def to_tuple(self, *keys: str) -> StandIn:
        assert keys == ("png;jpg", "cls")
        return self

    def batched(self, size: int) -> Iterator[tuple[Any, Any]]:
        pixels = PIXELS.astype(np.float32) / 255
        for start in range(0, len(LABELS), size):
            yield pixels[start : start + size], np.array(LABELS[start : start + size])


def samples(folder: Path) -> Any:
    if importlib.util.find_spec("webdataset") is None:
        return StandIn()
    import webdataset

    with webdataset.TarWriter(str(folder / "a.tar")) as writer:
        for n, (x, y) in enumerate(zip(PIXELS, LABELS, strict=True)):
            writer.write({"__key__": f"{n:03}", "png": x, "cls": y})
    return webdataset.WebDataset(str(folder / "a.tar"), shardshuffle=False)


def test_a_webdataset_gives_its_pictures_and_labels_and_trains(tmp_path: Path) -> None:
    batches = functions()["webdataset"]
    found = [(images.numpy(), labels.tolist()) for images, labels in batches(samples(tmp_path), batch_size=4)]
    assert [labels for _, labels in found] == [LABELS[:4], LABELS[4:]]
    images = np.concatenate([images for images, _ in found])
    np.testing.assert_allclose(images, np.moveaxis(PIXELS, -1, 1) / 255.0, rtol=1e-6)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 3))
    optimizer = mn.optim.SGD(model.parameters(), lr=0.01)
    score = train_epoch(model, batches(samples(tmp_path), 3), nn.CrossEntropyLoss(), optimizer)
    assert score.images == 6
