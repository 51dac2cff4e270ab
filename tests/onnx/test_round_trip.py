"""load -> export -> load: the same outputs and the same names, for all that the onnx package brings along.

Once by tracing, which tests what operators write of what they read, and once written back: the nodes of the file.
"""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn

onnx = pytest.importorskip("onnx")

from onnx import numpy_helper  # noqa: E402  after importorskip
from onnx.backend.test.loader import load_model_tests  # noqa: E402

import minorm.onnx as mo  # noqa: E402
from minorm.devices import dtypes  # noqa: E402
from minorm.onnx.graph import registry  # noqa: E402
from minorm.onnx.graph.tensors import DTYPES  # noqa: E402
from minorm.tensor.tensor import Tensor  # noqa: E402

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
LIGHT = sorted(path.stem.removeprefix("light_") for path in (DATA / "light").glob("*.onnx"))
for twin in ("vgg19", "zfnet512"):  # a good deal of time, and no operator that AlexNet has not
    LIGHT.remove(twin)
TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2}

# Properties that a graph cannot express, or that minorm does not write yet.
REFUSED = {
    "test_constantofshape_float_ones": "its input is a shape",
    "test_constantofshape_int_zeros": "its input is a shape",
    "test_nonmaxsuppression_suppress_by_IOU_and_scores": "how many boxes are kept depends on their scores",
}
LOOSE = {
    "test_pow_types_int64_float32": "a float exponent is a Parameter, until its result is known to be cast to integers",
    "test_pow_types_int32_float32": "the same",
    "test_training_dropout_zero_ratio": "nothing is left that could train",
}


def run(module: Any, arrays: Any) -> list[Any]:
    """The outputs; running statistics are put back."""
    before = [(buffer, buffer.array.copy()) for buffer in module.buffers()]
    mn.manual_seed(0)
    with mn.no_grad():
        results = module(*[Tensor(array.copy()) for array in arrays])
    for buffer, contents in before:
        np.copyto(buffer.array, contents)
    return [np.array(y.array) for y in (results if isinstance(results, tuple) else (results,))]


def there_and_back(first: Any, arrays: Any, opset: int, strict: bool = True, **options: Any) -> Any:
    """Export and load again, and compare everything; returns what was traced."""
    back = mo.export(first, None, None, training=None)
    assert nodes_of(back) == nodes_of(first.original.model)
    compared(copy.deepcopy(first), mo.load(back), arrays, strict)
    first.original = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        proto = mo.export(first, tuple(Tensor(a) for a in arrays), None, opset_version=opset, training=None, **options)
    compared(first, mo.load(proto), arrays, strict)
    return proto


def nodes_of(model: Any) -> list[Any]:
    """All but the contents of Constants, of which the file's copy has not all."""
    return [(n.op_type, n.name, n.input, n.output, n.op_type == "Constant" or n.attribute) for n in model.graph.node]


def compared(first: Any, second: Any, arrays: Any, strict: bool = True) -> None:
    assert (second.input_names, second.output_names) == (first.input_names, first.output_names)
    if strict:
        assert {name for name, _ in second.named_parameters()} == {name for name, _ in first.named_parameters()}
        assert {name for name, _ in second.named_buffers()} == {name for name, _ in first.named_buffers()}
        assert second.training == first.training
    for got, want in zip(run(second, arrays), run(first, arrays), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        allowed = TOLERANCE.get(str(got.dtype), 1e-5)
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=allowed, atol=allowed)


def considered(model: Any) -> bool:
    operators = {operator for operator, _ in registry.READERS}
    kinds = [value.type for value in (*model.graph.input, *model.graph.output)]
    return all(kind.tensor_type.elem_type in DTYPES for kind in kinds) and all(
        node.domain == "" and node.op_type in operators for node in model.graph.node
    )


def held(model: Any, arrays: Any) -> Any:
    """The model with all inputs but the first as initializers: a graph that says shapes, axes and scales itself."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    known = {tensor.name for tensor in model.graph.initializer}
    names = [entry.name for entry in model.graph.input if entry.name not in known]
    for name, array in list(zip(names, arrays, strict=True))[1:]:
        fixed.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
    return fixed


def test_every_node_test() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [case for case in load_model_tests(kind="node") if considered(case.model)]
    failures, done = {}, 0
    for case in cases:
        arrays = [
            numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else np.asarray(x) for x in case.data_sets[0][0]
        ]
        try:
            first = mo.load(held(case.model, arrays))
        except mo.LoadError:
            continue  # test_node_tests.py counts what loads
        if not first.inputs:
            continue
        opset = max(7, *(entry.version for entry in case.model.opset_import if entry.domain in ("", "ai.onnx")))
        try:
            there_and_back(first, arrays[:1], opset, case.name not in LOOSE, dynamic_axes={})
            done += 1
        except (ValueError, TypeError, AssertionError) as error:
            failures[case.name] = str(error)
    loops = {name for name, why in failures.items() if "the number of turns depends on the input" in why}
    assert len(loops) == 5  # traced; written back, they were compared before
    assert {name: why for name, why in failures.items() if name not in {*REFUSED, *loops}} == {}
    assert done > 1500


@pytest.mark.parametrize("name", LIGHT)
def test_the_light_networks(name: str) -> None:
    path = DATA / "light" / f"light_{name}.onnx"
    first = mo.load(path)
    shape = first.inputs[0].shape
    x = (np.arange(np.prod(shape)) / np.prod(shape)).astype(np.float32).reshape(shape)
    proto = there_and_back(first, [x], 13, dynamic_axes={})
    old = onnx.load(path)
    kept = {tensor.name for tensor in proto.graph.initializer}
    assert {name for name, _ in first.named_parameters()} <= kept & {t.name for t in old.graph.initializer}
    count = [sum(n.op_type == "BatchNormalization" for n in model.graph.node) for model in (old, proto)]
    assert count[0] == count[1]


def test_recorded_models_of_pytorch() -> None:
    done = 0
    for kind in ("pytorch-converted", "pytorch-operator"):
        for folder in sorted((DATA / kind).iterdir()):
            model = onnx.load(folder / "model.onnx")
            if not considered(model):
                continue
            arrays = [
                numpy_helper.to_array(onnx.load_tensor(file))
                for file in sorted((folder / "test_data_set_0").glob("input_*.pb"))
            ]
            opset = max(7, model.opset_import[0].version)
            try:
                first = mo.load(model)
            except mo.LoadError:
                continue
            there_and_back(first, arrays, opset, dynamic_axes={})
            done += 1
    assert done > 60


def test_float_types_are_those_of_the_file() -> None:
    """A cast here would be a cast that the file does not have."""
    for dtype in dtypes.FLOATS:
        layer = mn.nn.Sequential(mn.nn.Conv1d(2, 4, 1), mn.nn.GroupNorm(2, 4), mn.nn.BatchNorm1d(4)).to(dtype)
        x = mn.randn(3, 2, 5).to(dtype)
        first = mo.load(mo.export(layer, x, None))
        proto = there_and_back(first, [x.array], 26)
        assert {tensor.data_type for tensor in proto.graph.initializer} & {1, 10, 11, 16} == {
            kind for kind, own in DTYPES.items() if own == dtype
        }
