"""The page of `minorm check --html`: all of a model, whole on its own, whatever the names in the file are."""

from __future__ import annotations

import html.parser
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import cli, nn

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("rich")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import minorm.onnx as mo  # noqa: E402

VOID = {"meta", "br", "path", "rect"}


class Page(html.parser.HTMLParser):
    """Tags, ids, links and text; an error where tags do not close."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags, self.ids, self.links, self.words = set[str](), list[str](), list[str](), list[str]()
        self.feed(path.read_text())
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        found = dict(attrs)
        self.tags.add(tag)
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found[name] for name in ("href", "src") if name in found]
        assert not any(name.startswith("on") for name in found)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data.strip())


def written(model: str | Path, folder: Path, *words: str) -> tuple[int, Page]:
    code = cli.main(["check", str(model), "--html", str(folder / "page.html"), *words])
    return code, Page(folder / "page.html")


def chain(nodes: list[Any], path: Path, last: str) -> Path:
    entries = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2])] for name in ("x", last)]
    held = [numpy_helper.from_array(np.ones((2, 2), np.float32), "w")]
    graph = helper.make_graph(nodes, "g", *entries, held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_a_page_stands_on_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    block = lambda: nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.ReLU())  # noqa: E731
    net = nn.Sequential(*(nn.Sequential(block(), block()) for _ in range(12)))
    net[0].freeze()
    mo.export(net, mn.ones(2, 3, 4, 4), tmp_path / "m.onnx")
    code, page = written(tmp_path / "m.onnx", tmp_path, "--shape", "batch=5")
    assert code == 0
    assert "Layers" in capsys.readouterr().out  # which comes all the same
    assert {"svg", "table", "details"} <= page.tags
    assert not {"script", "link", "img", "iframe"} & page.tags
    assert page.links == [f"#block-{i}" for i in range(24)]
    assert {link[1:] for link in page.links} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert "5x3x4x4" in page.words
    assert "frozen" in page.words
    assert any(word.startswith("at x 5x3x4x4: 17.3 k multiplications; 432 parameters") for word in page.words)
    text = (tmp_path / "page.html").read_text()
    assert "prefers-color-scheme: dark" in text
    assert "max-width: 640px" in text
    assert not re.search(r"https?://|@import|url\(", text)


@pytest.mark.parametrize("name", ['</title><script>alert("x")</script>', "\u202e\x1b[2J&amp;'\"", "n" * 100_000])
def test_names_are_escaped(name: str, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "w"], [f"v{name}"], name=f"/{name}/Mul"),
        helper.make_node("Relu", [f"v{name}"], [name], name=name),
    ]
    code, page = written(chain(nodes, tmp_path / "m.onnx", name), tmp_path)
    assert code == 0
    assert "script" not in page.tags
    text = (tmp_path / "page.html").read_text()
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert len(text) < 60_000


def test_a_file_that_minorm_does_not_run_has_a_page(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("StringNormalizer", ["a"], ["y"], name="d")]
    path = chain(nodes, tmp_path / "m.onnx", "y")
    code, page = written(path, tmp_path)
    assert code == 1
    assert "StringNormalizer, d: minorm does not have the operator StringNormalizer" in page.words
    assert "load(..., outputs=['a']) loads the graph before these nodes" in page.words


def test_large_graphs_are_not_drawn_box_by_box(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", [f"v{i}" if i else "x"], [f"v{i + 1}"]) for i in range(4000)]
    start = time.process_time()
    code, page = written(chain(nodes, tmp_path / "m.onnx", "v4000"), tmp_path, "--json")
    assert time.process_time() - start < 30
    assert code == 0
    assert "The model has 4,000 layers without module names, which are too many to draw." in page.words
    assert "and 1,000 more layers" in page.words
    assert "svg" not in page.tags


def test_dense_connections_are_not_drawn_one_by_one(tmp_path: Path) -> None:
    nodes = [helper.make_node("Sum", ["x", *(f"v{j}" for j in range(1, i))], [f"v{i}"]) for i in range(1, 101)]
    _, page = written(chain(nodes, tmp_path / "m.onnx", "v100"), tmp_path)
    assert any(word.endswith("connections, which are too many to draw.") for word in page.words)


def test_where_no_page_can_be_the_error_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = chain([helper.make_node("Relu", ["x"], ["y"])], tmp_path / "m.onnx", "y")
    assert cli.main(["check", str(path), "--html", str(tmp_path / "none" / "page.html")]) == 1
    out = capsys.readouterr()
    assert "the folder" in out.err
    assert out.out == ""
    before = path.read_bytes()
    assert cli.main(["check", str(path), "--html", f"{tmp_path}/../{tmp_path.name}/m.onnx"]) == 1
    assert "is the model itself; expected another file" in capsys.readouterr().err
    assert path.read_bytes() == before
    (tmp_path / "page.html").write_text("old")
    assert cli.main(["check", str(tmp_path / "absent.onnx"), "--html", str(tmp_path / "page.html")]) == 1
    assert (tmp_path / "page.html").read_text() == "old"
