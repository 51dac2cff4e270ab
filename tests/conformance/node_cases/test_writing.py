"""The folder is what onnx's own loader of backend tests reads, and what its README says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx

from minorm.conformance.node_cases import __main__ as command
from minorm.conformance.node_cases.__main__ import main
from minorm.conformance.node_cases.collecting import collect, source_files

CASES = collect()[::8] + collect()[-2:]  # a thousand files take a while


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("cases") / "new"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "collect", lambda: CASES)
        main([str(place)])
    return place


def test_the_folders_are_those_of_onnx(folder: Path) -> None:
    """model.onnx, and tensors with the names of the model's inputs and outputs, in their order."""
    names = {kind: {path.name for path in (folder / kind).iterdir()} for kind in ("node", "simple")}
    assert names == {kind: {case.name for case in CASES if case.kind == kind} for kind in names}
    for case in CASES:
        place = folder / case.kind / case.name
        assert onnx.load(place / "model.onnx") == case.model
        assert {path.name for path in place.iterdir()} == {"model.onnx", "test_data_set_0"}
        for which, infos, arrays in (
            ("input", case.model.graph.input, case.inputs),
            ("output", case.model.graph.output, case.outputs),
        ):
            assert len(list(place.glob(f"test_data_set_0/{which}_*.pb"))) == len(arrays)
            for number, array in enumerate(arrays):
                tensor = onnx.TensorProto.FromString((place / f"test_data_set_0/{which}_{number}.pb").read_bytes())
                assert tensor.name == infos[number].name
                np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor), array, strict=True)


def test_sources_and_readme(folder: Path) -> None:
    copied = {path.name: path.read_text() for path in (folder / "case").rglob("*.py")}
    assert copied.keys() == {path.name for path in source_files()}
    for path in source_files():
        assert copied[path.name].endswith(path.read_text())
        assert copied[path.name].startswith("# Copyright (c) ONNX Project Contributors")
    assert (folder / "case/model/normalization_gradients.py").exists()
    text, cases = (folder / "README.md").read_text(), CASES
    counts = [int(n) for n in re.findall(r"^\| \w+ \| [\d, ]+ \| (\d+) \|$", text, re.MULTILINE)]
    assert sum(counts) == len(cases)
    assert text.splitlines()[2].startswith(f"There are {sum(c.kind == 'node' for c in cases)} cases of single nodes")


def test_a_folder_that_is_in_use(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(SystemExit, match="is there and not empty; expected a new folder"):
        main([str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    with pytest.raises(SystemExit, match="node_cases: "):
        main([str(tmp_path / "mine")])
    assert (tmp_path / "mine").read_text() == "kept"
