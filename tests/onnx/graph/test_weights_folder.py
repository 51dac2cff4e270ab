"""Links to weights: refused, unless they lead where the model itself really lies or where the caller says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn

onnx = pytest.importorskip("onnx")

from onnx import helper as h  # noqa: E402  after importorskip

import minorm.onnx as mo  # noqa: E402
from minorm import cli  # noqa: E402

W = np.arange(32, dtype=np.float32).reshape(8, 4)


def cache(root: Path, graph_of: Any, weights: str = "blobs", model_is_link: bool = True) -> str:
    """A model whose weights are behind a link, as a hub's cache keeps them: snapshots/rev/... -> ../../blobs/..."""
    for name in ("blobs", "elsewhere", "snapshots/rev"):
        (root / name).mkdir(parents=True, exist_ok=True)
    proto = graph_of([h.make_node("MatMul", ["x", "w"], ["y"])], {"x": (np.float32, [2, 8])}, ["y"], {"w": W})
    at = root / "blobs"
    onnx.save(proto, at / "m", save_as_external_data=True, location="model.onnx_data", size_threshold=0)
    os.rename(at / "model.onnx_data", root / weights / "bbb")
    snapshot = root / "snapshots/rev"
    (snapshot / "model.onnx_data").symlink_to(f"../../{weights}/bbb")
    if model_is_link:
        (snapshot / "model.onnx").symlink_to("../../blobs/m")
    else:
        os.rename(at / "m", snapshot / "model.onnx")
    return str(snapshot / "model.onnx")


def computes(model: Any) -> bool:
    x = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)
    return np.allclose(model(mn.tensor(x)).detach().numpy(), x @ W, rtol=1e-5)


def test_a_hubs_cache_is_read(tmp_path: Path, graph_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = cache(tmp_path, graph_of)
    assert computes(mo.load(path))
    monkeypatch.chdir(os.path.dirname(path))
    assert computes(mo.load("model.onnx"))
    assert computes(mo.load(mo.convert(path, opset_version=13)))


@pytest.mark.parametrize("model_is_link", [True, False])
def test_other_links_need_the_folder_named(model_is_link: bool, tmp_path: Path, graph_of: Any) -> None:
    path = cache(tmp_path, graph_of, "elsewhere", model_is_link)
    root = str(tmp_path / "elsewhere")
    for call in (lambda: mo.load(path), lambda: mo.convert(path, opset_version=13)):
        with pytest.raises(mo.LoadError, match="which is a link; expected an ordinary file") as caught:
            call()
        assert f"load(path, external_root={root!r})" in str(caught.value)
        assert f"--external-root {root}" in str(caught.value)
    with pytest.raises(mo.LoadError, match="which is a link"):
        mo.load(path, external_root=tmp_path / "snapshots")
    assert computes(mo.load(path, external_root=root))
    assert computes(mo.load(path, external_root=tmp_path))  # at any depth
    assert computes(mo.load(mo.convert(path, opset_version=13, external_root=root)))


def test_a_folder_whose_name_begins_alike_is_another(tmp_path: Path, graph_of: Any) -> None:
    path = cache(tmp_path, graph_of, "elsewhere", model_is_link=False)
    (tmp_path / "else").mkdir()
    with pytest.raises(mo.LoadError, match="which is a link"):
        mo.load(path, external_root=tmp_path / "else")


def test_a_root_is_a_folder(tmp_path: Path, graph_of: Any) -> None:
    path = cache(tmp_path, graph_of)
    with pytest.raises(mo.LoadError, match=r"external_root is .*nowhere'; expected a folder that exists"):
        mo.load(path, external_root=tmp_path / "nowhere")
    with pytest.raises(TypeError, match="external_root"):
        mo.load(path, external_root=3)  # type: ignore[arg-type]


def test_names_still_lead_nowhere_else(tmp_path: Path, graph_of: Any) -> None:
    path = cache(tmp_path, graph_of)
    proto = onnx.load(path, load_external_data=False)
    proto.graph.initializer[0].external_data[0].value = "../../blobs/bbb"
    onnx.save(proto, tmp_path / "snapshots/rev/other.onnx")
    with pytest.raises(mo.LoadError, match="expected a file inside the model's folder"):
        mo.load(tmp_path / "snapshots/rev/other.onnx", external_root=tmp_path)


def test_commands_take_the_folder(tmp_path: Path, graph_of: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich")
    path = cache(tmp_path, graph_of, "elsewhere", model_is_link=False)
    assert cli.main(["check", path, "--brief"]) == 1
    assert "--external-root" in capsys.readouterr().out
    out = str(tmp_path / "out.onnx")
    root = ["--external-root", str(tmp_path / "elsewhere")]
    assert cli.main(["convert", path, "--opset", "13", "-o", out, "--no-verify", *root]) == 0
    assert computes(mo.load(out))
    cli.main(["check", path, "--json", *root])
    assert '"state": "ok"' in capsys.readouterr().out
