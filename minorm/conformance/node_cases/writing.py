"""Write cases as the folders that onnx's backend tests read, with their sources and a README."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from onnx import numpy_helper

from minorm.conformance.node_cases.collecting import NodeCase, kind_of, source_files
from minorm.conformance.node_cases.known import REFERENCE

LICENCE = "# Copyright (c) ONNX Project Contributors\n#\n# SPDX-License-Identifier: Apache-2.0\n"
CASE_FOLDERS = {"node": "node", "simple": "model"}  # folders of onnx/backend/test/case
README = """# Test cases of normalizations

There are {nodes} cases of single nodes, and {models} cases of gradients. onnx/backend/test has no cases like these:
training mode with every momentum and in older versions; data far from 0, and data with a small variance or none; axes,
broadcast scales, stash types and float16; gradients by the operator Gradient.

| folder | what is in it | where it belongs |
|---|---|---|
| node, simple | a folder a case: model.onnx, and test_data_set_0 with its inputs and outputs | onnx/backend/test/data |
| case/node, case/model | the Python that makes them | onnx/backend/test/case |

Outputs are computed in float64 from the inputs as they are stored, and then rounded to their type. onnx compares with
rtol=1e-3 and atol=1e-7. Data far from 0 are an offset plus multiples of 1/4, each with its negative. In float32 their
sum and x - mean are exact. So an implementation fails there if it computes E[x^2] - E[x]^2, or a mean that is not
exact. In float16 scale is 1 and bias 0, because a sum that cancels would leave nothing to compare.

onnx.checker refuses GroupNormalization of opset 18, which is deprecated, but files of opset 18 to 20 contain it.

| operator | opsets | cases |
|---|---|---|
{table}

## Where onnx.reference differs

| cases | why |
|---|---|
{differ}
"""


def write(cases: Sequence[NodeCase], folder: str) -> None:
    """Write everything into a new or empty folder; otherwise raise FileExistsError and write nothing."""
    if os.path.lexists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
        raise FileExistsError(f"{folder} is there and not empty; expected a new folder for the cases")
    for case in cases:
        place = Path(folder, case.kind, case.name)
        _put(place / "model.onnx", case.model.SerializeToString())
        graph = case.model.graph
        for which, infos, arrays in (("input", graph.input, case.inputs), ("output", graph.output, case.outputs)):
            for number, (info, array) in enumerate(zip(infos, arrays, strict=True)):
                tensor = numpy_helper.from_array(array, info.name)
                _put(place / "test_data_set_0" / f"{which}_{number}.pb", tensor.SerializeToString())
    for path in source_files():
        text = LICENCE + path.read_text()
        _put(Path(folder, "case", CASE_FOLDERS[kind_of(path)], path.name), text.encode())
    _put(Path(folder, "README.md"), readme(cases).encode())


def _put(path: Path, contents: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(contents)


def readme(cases: Sequence[NodeCase]) -> str:
    """Return the README, which describes the folder."""
    counts: dict[str, list[int]] = {}
    for case in cases:
        counts.setdefault(case.operator, []).append(case.opset)
    table = "\n".join(
        f"| {operator} | {', '.join(map(str, sorted(set(opsets))))} | {len(opsets)} |"
        for operator, opsets in sorted(counts.items())
    )
    kinds = [case.kind for case in cases]
    return README.format(
        nodes=kinds.count("node"),
        models=kinds.count("simple"),
        table=table,
        differ="\n".join(f"| {pattern} | {why} |" for pattern, why in REFERENCE.items()),
    )
