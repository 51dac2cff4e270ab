"""Run the source files with an `expect` that collects each case.

The `expect` of onnx would add the case to its package.
"""

from __future__ import annotations

import importlib
import runpy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, helper

SOURCES = Path(__file__).parent / "sources"
KINDS = {"node": "onnx.backend.test.case.node", "simple": "onnx.backend.test.case.model"}  # the folders of onnx's data


@dataclass(frozen=True)
class NodeCase:
    """Holds a model, its inputs and expected outputs. `kind` is "node", or "simple" for a model of several nodes."""

    kind: str
    name: str
    model: ModelProto
    inputs: list[Any]
    outputs: list[Any]

    @property
    def operator(self) -> str:
        """Return the operator of the first node, which is the normalization."""
        return str(self.model.graph.node[0].op_type)

    @property
    def opset(self) -> int:
        """Return the opset of the default domain "" in the model."""
        return int(next(entry.version for entry in self.model.opset_import if not entry.domain))


def source_files() -> list[Path]:
    """Return the paths of the files in sources/ that make cases, in the order of their names."""
    return sorted(path for path in SOURCES.glob("*.py") if path.name != "__init__.py")


def kind_of(path: Path) -> str:
    """Return the kind of cases that a source makes; it depends on the module from which the source imports `expect`."""
    return next(kind for kind, module in KINDS.items() if f"from {module} import expect" in path.read_text())


def collect() -> list[NodeCase]:
    """Return all cases; every call returns the same numbers."""
    found: list[NodeCase] = []

    def of_node(node: Any, inputs: Sequence[Any], outputs: Sequence[Any], name: str, opset_imports: Any) -> None:
        given = zip((key for key in node.input if key), inputs, strict=True)
        results = zip((key for key in node.output if key), outputs, strict=False)  # other outputs are not wanted
        graph = helper.make_graph([node], name, [_info(*each) for each in given], [_info(*each) for each in results])
        model = helper.make_model_gen_version(graph, producer_name="backend-test", opset_imports=opset_imports)
        found.append(NodeCase("node", name, model, list(inputs), list(outputs)))

    def of_model(model: Any, inputs: Sequence[Any], outputs: Sequence[Any], name: str) -> None:
        found.append(NodeCase("simple", name, model, list(inputs), list(outputs)))

    with _replaced("node", of_node), _replaced("simple", of_model), _seeds_kept():
        for path in source_files():
            runpy.run_path(str(path))
    return found


def _info(name: str, array: Any) -> Any:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


@contextmanager
def _replaced(kind: str, expect: Any) -> Iterator[None]:
    """Inside the `with` block, replace `expect` in the module of onnx from which sources of this kind import it."""
    module = importlib.import_module(KINDS[kind])
    before = module.expect
    module.expect = expect  # type: ignore[attr-defined]
    try:
        yield
    finally:
        module.expect = before  # type: ignore[attr-defined]


@contextmanager
def _seeds_kept() -> Iterator[None]:
    """Restore the state of NumPy's legacy generator after the block.

    The class Base of onnx seeds this generator before each export.
    """
    before = np.random.get_state()  # noqa: NPY002  the sources draw from this generator
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002
