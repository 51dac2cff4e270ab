"""The tests that the onnx package brings along: nodes, models recorded from PyTorch, and nine light networks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import numpy_helper  # noqa: E402  after importorskip

import minorm.onnx as mo  # noqa: E402
from minorm.devices import dtypes  # noqa: E402
from minorm.onnx import backend  # noqa: E402
from minorm.onnx.graph import registry, versions  # noqa: E402
from minorm.onnx.graph.storage import narrow  # noqa: E402
from minorm.onnx.operators.expansions import EXPANSIONS as WRITTEN_OUT  # noqa: E402
from minorm.tensor.tensor import Tensor  # noqa: E402
from tests.onnx.node_tests import compare, considered, element_of, everything, plain  # noqa: E402

COUNTED_WITH = "1.23.2"  # the onnx package whose tests these numbers count
PASSED, TOTAL = 1835, 1884

RANDOM = "the expected values are one draw of a random generator, which ONNX does not define"
EXCEPTIONS = dict.fromkeys(
    ("test_training_dropout", "test_training_dropout_default", "test_training_dropout_default_mask",
     "test_training_dropout_mask", "test_bernoulli", "test_bernoulli_expanded", "test_bernoulli_double",
     "test_bernoulli_double_expanded", "test_bernoulli_seed", "test_bernoulli_seed_expanded"), RANDOM
)  # fmt: skip

# The others: how many, and why.
LEFT = {"text": 26, "ai.onnx.ml": 4, "ImageDecoder": 9}

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
LIGHT = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19",
    "zfnet512",
)  # fmt: skip


def failures(cases: Sequence[Any]) -> list[str]:
    found = []
    for case in cases:
        try:
            prepared = backend.prepare(case.model)
            for inputs, outputs in case.data_sets:
                compare(prepared.run([plain(x) for x in inputs]), outputs, case.rtol, case.atol)
        except (ValueError, TypeError, AssertionError) as error:
            found.append(f"{case.name}: {error}")
    return found


def test_every_node_test_of_the_operators_and_types_of_minorm() -> None:
    cases = [case for case in everything() if considered(case.model) and case.name not in EXCEPTIONS]
    assert failures(cases) == []
    assert set(EXCEPTIONS) <= {case.name for case in everything()}
    if onnx.__version__ == COUNTED_WITH:
        assert (len(cases), len(everything())) == (PASSED, TOTAL)


def test_what_is_left_has_a_reason() -> None:
    found = Counter(reason(case.model) for case in everything() if not considered(case.model))
    assert set(found) <= set(LEFT)
    if onnx.__version__ == COUNTED_WITH:
        assert found == LEFT


def reason(model: Any) -> str:
    """Why minorm does not read it."""
    values = (*model.graph.input, *model.graph.output)
    if any(element_of(value.type) == onnx.TensorProto.STRING for value in values):
        return "text"
    return next((node.domain or node.op_type for node in model.graph.node), "no node")


def test_all_that_concern_the_normalizations_are_among_them() -> None:
    names = re.compile("batchnorm|instancenorm|(group|layer|rms|lp)_?norm|lrn|mvn|l[12]norm")
    cases = [case for case in everything() if names.search(case.name)]
    assert all(considered(case.model) for case in cases)
    if onnx.__version__ == COUNTED_WITH:
        assert len(cases) == 116


# A graph cannot express places counted by columns.
NOT_WRITTEN = {"test_maxpool_with_argmax_2d_precomputed_strides"}
SHAPES = ("Where", "Gather", "GatherElements", "SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")


def with_constants(case: Any) -> tuple[Any, list[Any]]:
    """The model with what fixes shapes (axes, sizes, scales) in the file; the inputs that are left."""
    model = onnx.ModelProto.FromString(case.model.SerializeToString())
    node = model.graph.node[0]
    alone = len(model.graph.node) == 1 and node.op_type not in SHAPES and ("", node.op_type) not in WRITTEN_OUT
    since = versions.resolve(node.op_type, model.opset_import[0].version) if alone and not node.domain else 0
    fixed = registry.READERS[node.op_type, since].fixed if since else ()
    places = fixed if isinstance(fixed, tuple) and alone else ()
    left = []
    for entry, value in zip(list(model.graph.input), case.data_sets[0][0], strict=True):
        if places and list(node.input).index(entry.name) in places:
            model.graph.initializer.append(numpy_helper.from_array(plain(value), entry.name))
            model.graph.input.remove(entry)
        else:
            left.append(tensors_of(plain(value)))
    return model, left


@pytest.mark.filterwarnings("ignore:export")
def test_what_was_read_can_be_written_and_read_again() -> None:
    bad, good = [], 0
    for case in everything():
        if case.name in {*EXCEPTIONS, *NOT_WRITTEN} or "_expanded" in case.name or not considered(case.model):
            continue
        model, inputs = with_constants(case)
        whole = all(isinstance(x, Tensor) for x in inputs)
        if not any(dtypes.is_float(x.dtype) for x in inputs if isinstance(x, Tensor)):
            continue
        try:
            loaded = mo.load(model)
            again = mo.load(mo.export(loaded, tuple(inputs) if whole else None, None))
            compare(arrays(again(*inputs)), arrays(loaded(*inputs)), 1e-5, 1e-6)
            good += 1
        except (ValueError, TypeError, AssertionError) as error:
            bad.append(f"{case.name}: {error}")
    assert bad == []
    assert good > 600


def tensors_of(value: Any) -> Any:
    """The result of `plain`, in the form that a loaded graph takes."""
    return (
        [tensors_of(x) for x in value] if isinstance(value, list) else None if value is None else narrow.tensor(value)
    )


def arrays(results: Any) -> list[Any]:
    """The result of a loaded graph, in the form that `plain` does."""
    several = results if isinstance(results, (tuple, list)) else (results,)
    return [arrays(x) if isinstance(x, list) else None if x is None else x.array for x in several]


def test_the_documentation_says_how_many() -> None:
    text = (Path(__file__).parents[2] / "docs" / "onnx.md").read_text(encoding="utf-8")
    assert f"{PASSED} of {TOTAL} node tests of onnx {COUNTED_WITH}" in text


def tensors(folder: Path, kind: str) -> list[Any]:
    files = sorted(folder.glob(f"{kind}_*.pb"), key=lambda path: int(path.stem.rpartition("_")[2]))
    return [numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes())) for path in files]


@pytest.mark.parametrize("kind", ["pytorch-operator", "pytorch-converted"])
def test_models_that_pytorch_wrote_at_opset_6(kind: str) -> None:
    folders = sorted((DATA / kind).iterdir())
    assert folders
    for folder in folders:
        prepared = backend.prepare(onnx.load(folder / "model.onnx"))
        for data in folder.glob("test_data_set_*"):
            inputs = tensors(data, "input")[: len(prepared.module.inputs)]
            compare(prepared.run(inputs), tensors(data, "output"))


@pytest.mark.parametrize("name", LIGHT)
def test_light_models(name: str) -> None:
    """Weights are drawn by the models' own nodes; the input is arange(n) / n."""
    prepared = backend.prepare(onnx.load(DATA / "light" / f"light_{name}.onnx"))
    [entry] = prepared.module.inputs
    n = int(np.prod(entry.shape))
    x = (np.arange(n) / n).astype(np.float32).reshape(entry.shape)
    want = onnx.TensorProto.FromString((DATA / "light" / f"light_{name}_output_0.pb").read_bytes())
    compare(prepared.run([x]), [want], 1e-3, 1e-3)
