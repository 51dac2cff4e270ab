"""Weights in a file beside the model: where they lie, that they are read back, that no half of a model ever stays."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.onnx as mo
from minorm import nn
from minorm.onnx.graph import external

onnx = pytest.importorskip("onnx")
X = mn.ones(2, 3, 8, 8)


def net() -> nn.Module:
    mn.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 40, 3), nn.BatchNorm2d(40), nn.ReLU(), nn.Flatten(), nn.Linear(40 * 36, 300), nn.Linear(300, 2)
    )


def places(proto: Any) -> dict[str, dict[str, str]]:
    return {t.name: {e.key: e.value for e in t.external_data} for t in proto.graph.initializer if t.external_data}


def test_large_tensors_lie_beside_the_model_on_pages_of_their_own(tmp_path: Path) -> None:
    model = net()
    path = tmp_path / "net.onnx"
    proto = mo.export(model, X, path, external_data=True)
    assert sorted(os.listdir(tmp_path)) == ["net.onnx", "net.onnx.data"]
    assert onnx.load(path, load_external_data=False) == proto
    assert path.stat().st_size < 10_000
    found = places(proto)
    assert list(found) == ["0.weight", "4.weight", "4.bias", "5.weight"]  # at least 1 KiB; the small ones stay inside
    raw = (tmp_path / "net.onnx.data").read_bytes()
    end = 0
    for name, place in found.items():
        offset, length = int(place["offset"]), int(place["length"])
        assert place["location"] == "net.onnx.data"
        assert offset % 4096 == 0
        assert offset >= end
        end = offset + length
        np.testing.assert_array_equal(
            np.frombuffer(raw[offset:end], np.float32), model.state_dict()[name].array.reshape(-1)
        )
    assert len(raw) == end


def test_it_is_read_back_checked_and_run(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model = net().eval()
    path = tmp_path / "net.onnx"
    mo.export(model, X, path, external_data=True, verify=True)
    onnx.checker.check_model(os.fspath(path), full_check=True)
    loaded = mo.load(path)
    for name, value in loaded.state_dict().items():
        np.testing.assert_array_equal(value.array, model.state_dict()[name].array)
    y = model(X)
    np.testing.assert_array_equal(loaded(X).array, y.array)
    assert mo.verify(path, [X], [y]).compared
    again = mo.export(loaded, X, None)
    assert {t.name for t in again.graph.initializer} == {t.name for t in onnx.load(path).graph.initializer}


@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16, mn.float64])
def test_every_float_type(dtype: Any, tmp_path: Path) -> None:
    model = nn.Linear(64, 64).to(dtype)
    x = mn.ones(2, 64).to(dtype)
    mo.export(model, x, tmp_path / "m.onnx", external_data=True)
    np.testing.assert_array_equal(mo.load(tmp_path / "m.onnx")(x).array, model(x).array)


def test_what_is_small_stays_in_one_file(tmp_path: Path) -> None:
    mo.export(net(), X, tmp_path / "a.onnx")
    mo.export(net(), X, tmp_path / "b.onnx", external_data=False)
    mo.export(nn.Linear(2, 2), mn.ones(1, 2), tmp_path / "c.onnx", external_data=True)
    assert sorted(os.listdir(tmp_path)) == ["a.onnx", "b.onnx", "c.onnx"]


def test_what_does_not_fit_into_one_file_goes_outside_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external, "LARGEST", external.MARGIN + 10_000)
    mo.export(net(), X, tmp_path / "net.onnx")
    assert (tmp_path / "net.onnx.data").exists()
    for path, options, fix in (
        (tmp_path / "b.onnx", {"external_data": False}, "leave external_data to its default"),
        (None, {}, "give a file name as path"),
        (io.BytesIO(), {}, "give a file name as path"),
    ):
        with pytest.raises(mo.ExportError, match=rf"export: the weights take \d+ bytes; .*{fix}"):
            mo.export(net(), X, path, **options)
    with pytest.raises(ValueError, match="external_data=True needs a file name"):
        mo.export(net(), X, io.BytesIO(), external_data=True)


def test_a_second_export_never_touches_the_weights_that_the_first_model_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "net.onnx"
    mo.export(net(), X, path, external_data=True)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    monkeypatch.setattr(external.Weights, "write", _broken)
    with pytest.raises(OSError, match="no space"):
        mo.export(net(), X, path, external_data=True)
    monkeypatch.undo()
    replace, seen = os.replace, []

    def watched(source: str, target: str) -> None:
        if os.fspath(target).endswith("net.onnx"):
            seen.append({name: (tmp_path / name).read_bytes() for name in before})
            raise OSError("no space left")
        replace(source, target)

    monkeypatch.setattr(os, "replace", watched)
    with pytest.raises(OSError, match="no space"):
        mo.export(net(), X, path, external_data=True)
    monkeypatch.undo()
    assert seen == [before]
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before

    other = nn.Linear(64, 64)
    mo.export(other, mn.ones(1, 64), path, external_data=True)
    assert sorted(os.listdir(tmp_path)) == ["net.onnx", "net.onnx.2.data"]  # the old weights are gone
    np.testing.assert_array_equal(mo.load(path)(mn.ones(1, 64)).array, other(mn.ones(1, 64)).array)
    mo.export(other, mn.ones(1, 64), path)
    assert os.listdir(tmp_path) == ["net.onnx"]


def test_files_that_only_look_like_weights_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"no model")
    (tmp_path / "net.onnx.data").write_bytes(b"mine")
    mo.export(net(), X, tmp_path / "net.onnx", external_data=True)
    assert (tmp_path / "net.onnx.data").read_bytes() == b"mine"
    assert (tmp_path / "net.onnx.2.data").exists()
    mo.load(tmp_path / "net.onnx")


def _broken(self: Any, file: Any) -> None:
    file.write(b"half")
    raise OSError("no space left")


def test_a_model_whose_name_is_not_utf_8(tmp_path: Path) -> None:
    """That of the other file stands in it, and it holds UTF-8 alone; the checkers get to both all the same."""
    pytest.importorskip("onnxruntime")
    folder = tmp_path / "f\udcfc"
    folder.mkdir()
    path = folder / "m\udcfc.onnx"
    for _ in range(2):  # the second time the first's weights go
        mo.export(net(), X, path, external_data=True, verify=True)
    (weights,) = [name for name in os.listdir(folder) if name != path.name]
    assert weights in ("m_.onnx.data", "m_.onnx.2.data")
    inside = mo.load(mo.export(net(), X, None)).state_dict()
    for name, tensor in mo.load(path).state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), inside[name].numpy())
