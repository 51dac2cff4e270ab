"""Which float types nodes read and make: every version of every operator, in types that it has and that it lacks."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

from onnx import AttributeProto, TensorProto, helper  # noqa: E402

from minorm.onnx.exporting import float_types  # noqa: E402
from minorm.onnx.exporting.float_types import Given, Made, Signature  # noqa: E402
from minorm.onnx.graph.versions import PUBLISHED  # noqa: E402
from tests.onnx import retyped  # noqa: E402
from tests.onnx.conftest import one_node  # noqa: E402
from tests.onnx.retyped import TYPES, cast  # noqa: E402
from tests.onnx.test_operator_versions import CASES, Case  # noqa: E402

FLOAT, DOUBLE = TensorProto.FLOAT, TensorProto.DOUBLE
HALF, BRAIN, INT64 = TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT64
LACKING = float_types.ONNXRUNTIME_LACKS


def signature(
    operator: str,
    opset: int,
    inputs: Any,
    wanted: int,
    named: int | None = None,
    lacking: Any = None,
    **attributes: Any,
) -> Any:
    node = helper.make_node(operator, [f"i{i}" for i in range(len(inputs))], ["a", "b", "c"][: attributes.pop("n", 1)])
    node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    given = [entry if isinstance(entry, Given) else Given(entry) for entry in inputs]
    schema = onnx.defs.get_schema(operator, opset, "")
    return Signature(node, schema, given, wanted, named, lambda name: FLOAT, lacking or {}).types()


@pytest.mark.parametrize(
    ("operator", "opset", "inputs", "wanted", "reads", "made"),
    [
        ("Add", 17, (FLOAT, FLOAT), HALF, [HALF, HALF], Made(HALF)),
        ("Add", 17, (FLOAT, FLOAT), 0, [FLOAT, FLOAT], Made(FLOAT)),
        ("Add", 17, (INT64, INT64), HALF, [0, 0], Made(INT64)),
        ("Gather", 17, (FLOAT, INT64), HALF, [HALF, 0], Made(HALF)),
        ("PRelu", 15, (FLOAT, FLOAT), BRAIN, [FLOAT, FLOAT], Made(FLOAT, rounded=True)),
        ("PRelu", 16, (FLOAT, FLOAT), BRAIN, [BRAIN, BRAIN], Made(BRAIN)),
        ("Range", 11, (FLOAT, FLOAT, FLOAT), HALF, [FLOAT] * 3, Made(FLOAT, rounded=True)),
        ("Celu", 12, (FLOAT,), DOUBLE, [FLOAT], Made(FLOAT)),
        ("Where", 17, (TensorProto.BOOL, FLOAT, HALF), DOUBLE, [0, DOUBLE, DOUBLE], Made(DOUBLE)),
        ("QuantizeLinear", 13, (FLOAT, FLOAT, 2), HALF, [FLOAT, FLOAT, 0], Made(2)),
        ("QuantizeLinear", 19, (FLOAT, FLOAT, 2), HALF, [HALF, HALF, 0], Made(2)),
        ("DequantizeLinear", 13, (2, FLOAT, 2), HALF, [0, FLOAT, 0], Made(FLOAT)),
        ("DequantizeLinear", 23, (2, FLOAT, 2), HALF, [0, HALF, 0], Made(HALF)),
        ("SequenceConstruct", 11, (FLOAT, FLOAT), HALF, [HALF, HALF], Made(HALF, sequence=True)),
        ("SequenceAt", 11, (Given(HALF, True), INT64), HALF, [HALF, 0], Made(HALF)),
        ("Identity", 17, (Given(FLOAT, True),), HALF, [HALF], Made(HALF, sequence=True)),
        ("Sum", 17, (TensorProto.FLOAT8E4M3FN, FLOAT), HALF, [0, HALF], Made(HALF)),  # damaged
        ("Equal", 7, (FLOAT, FLOAT), HALF, [HALF, HALF], Made(TensorProto.BOOL)),  # not in ONNX before 11
    ],
)
def test_what_a_node_reads_and_makes(
    operator: str, opset: int, inputs: Any, wanted: int, reads: list[int], made: Made
) -> None:
    types = signature(operator, opset, inputs, wanted)
    assert (types.reads, types.makes) == (reads, [made])


def test_numbers_that_are_no_data_keep_their_type() -> None:
    assert signature("Resize", 13, (FLOAT, FLOAT, FLOAT), HALF).reads == [HALF, FLOAT, FLOAT]
    assert signature("Dropout", 13, (FLOAT, FLOAT, TensorProto.BOOL), HALF, n=2).reads == [HALF, FLOAT, 0]
    assert signature("Resize", 13, (FLOAT, DOUBLE, FLOAT), DOUBLE, lacking=LACKING[DOUBLE]).reads == [
        FLOAT,
        FLOAT,
        FLOAT,
    ]


def test_layer_normalization_gives_its_statistics_in_the_stash_type() -> None:
    types = signature("LayerNormalization", 17, (FLOAT, FLOAT), HALF, n=3)
    assert types.makes == [Made(HALF), Made(FLOAT), Made(FLOAT)]
    assert signature("LayerNormalization", 17, (FLOAT, FLOAT), HALF, n=3, stash_type=BRAIN).makes[1] == Made(BRAIN)


@pytest.mark.parametrize(
    ("operator", "opset", "inputs", "named", "wanted", "names", "made"),
    [
        ("Cast", 17, (FLOAT,), FLOAT, HALF, HALF, Made(HALF)),
        ("Cast", 17, (FLOAT,), INT64, HALF, 0, Made(INT64)),
        ("Cast", 17, (INT64,), FLOAT, 0, 0, Made(FLOAT)),
        ("RandomNormal", 17, (), None, HALF, HALF, Made(HALF)),
        ("RandomNormal", 17, (), None, FLOAT, 0, Made(FLOAT)),
        ("RandomNormal", 17, (), None, BRAIN, 0, Made(FLOAT, rounded=True)),
        ("RandomNormalLike", 17, (FLOAT,), None, HALF, 0, Made(HALF)),
        ("RandomNormalLike", 17, (INT64,), FLOAT, HALF, HALF, Made(HALF)),
        ("EyeLike", 17, (INT64,), None, HALF, 0, Made(INT64)),
        ("Bernoulli", 15, (FLOAT,), TensorProto.BOOL, HALF, 0, Made(TensorProto.BOOL)),
        ("Multinomial", 17, (FLOAT,), None, HALF, 0, Made(TensorProto.INT32)),
        ("ConstantOfShape", 17, (INT64,), None, BRAIN, 0, Made(FLOAT, rounded=True)),
        ("ConstantOfShape", 20, (INT64,), FLOAT, BRAIN, BRAIN, Made(BRAIN)),
    ],
)
def test_types_that_attributes_name(
    operator: str, opset: int, inputs: Any, named: int | None, wanted: int, names: int, made: Made
) -> None:
    types = signature(operator, opset, inputs, wanted, named)
    assert (types.names, types.makes) == (names, [made])


def test_attributes_are_read_and_written_in_every_form() -> None:
    old = helper.make_node("Cast", ["x"], ["y"], to="FLOAT")
    assert float_types.named_type(old, {}) == FLOAT
    float_types.name_type(old, HALF)
    assert old.attribute[0].s == b"FLOAT16"
    filled = helper.make_node("ConstantOfShape", ["s"], ["y"])
    assert float_types.named_type(filled, {}) is None
    float_types.name_type(filled, DOUBLE)
    assert list(onnx.numpy_helper.to_array(filled.attribute[0].t)) == [0.0]
    assert float_types.named_type(filled, {}) == DOUBLE
    asked = helper.make_node("Cast", ["x"], ["y"])
    asked.attribute.add(name="to", type=AttributeProto.INT, ref_attr_name="t")
    assert float_types.named_type(asked, {"t": helper.make_attribute("t", HALF)}) == HALF
    assert float_types.named_type(asked, {}) is None
    float_types.name_type(asked, DOUBLE)
    assert (asked.attribute[0].i, asked.attribute[0].HasField("ref_attr_name")) == (DOUBLE, False)


def test_the_type_of_every_form_of_constant() -> None:
    forms = {"value_float": (1.0, FLOAT), "value_ints": ([1], INT64), "value_string": ("a", TensorProto.STRING)}
    for name, (value, elem) in forms.items():
        assert float_types.constant_type(helper.make_node("Constant", [], ["y"], **{name: value}), {}) == elem
    node = helper.make_node("Constant", [], ["y"])
    assert float_types.constant_type(node, {}) == 0
    node.attribute.add(name="value", type=AttributeProto.TENSOR, ref_attr_name="v")
    tensor = helper.make_tensor("t", HALF, [1], [0.5])
    assert float_types.constant_type(node, {"v": helper.make_attribute("v", tensor)}) == HALF


def test_numbers_that_the_type_cannot_hold_are_infinite() -> None:
    tensor = onnx.numpy_helper.from_array(np.array([1e9, -1e9, 0.1], np.float32), "t")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        float_types.retype_tensor(tensor, HALF)
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor), np.array([np.inf, -np.inf, 0.1], np.float16))


# Every version of every operator in onnxruntime


def models(case: Case) -> Iterator[Any]:
    """The node at the first and the last opset of each of its versions, in float32."""
    arrays = [None if x is None else cast(np.asarray(x), np.float32) for x in case.inputs]
    inside = [i for i, x in enumerate(arrays) if x is not None and x.dtype == np.float32]
    graph = [i for i in inside if case.graph is None or i in case.graph]
    held = [i for i, x in enumerate(arrays) if x is not None and i not in graph]
    for since in case.versions if graph else ():
        later = [v for v in PUBLISHED[case.operator] if v > since]
        for opset in sorted({since, min(later[0] - 1 if later else 26, 26)}):
            if since < 7 <= opset or 7 <= since <= opset:
                names = ["y", *(f"z{i}" for i in range(case.outputs - 1))]
                model = one_node(case.operator, arrays, max(opset, 7), names, held, ["y"], **case.attributes)
                found = onnx.shape_inference.infer_shapes(bare(model)).graph.value_info
                model.graph.output[0].CopyFrom(next((v for v in found if v.name == "y"), model.graph.output[0]))
                yield model, [arrays[i] for i in graph]


def bare(model: Any) -> Any:
    copy = type(model).FromString(model.SerializeToString())
    del copy.graph.output[:]
    return copy


def runs(model: Any, arrays: Any) -> list[Any] | None:
    try:
        return retyped.run(model, *arrays)
    except Exception:  # noqa: BLE001  of onnxruntime, whose exceptions have no common class
        return None


BY_OPERATOR: dict[str, list[Case]] = {}
for entry in CASES:
    BY_OPERATOR.setdefault(entry.operator, []).append(entry)


@pytest.mark.parametrize("name", ["float16", "float64"])
@pytest.mark.parametrize("operator", BY_OPERATOR)
def test_every_version_runs_in_onnxruntime(operator: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And an operator in the table does not, in some version, without the Casts."""
    lacking, elem = [], {"float16": HALF, "float64": DOUBLE}[name]
    for model, arrays in (pair for case in BY_OPERATOR[operator] for pair in models(case)):
        want = runs(model, arrays)
        if want is None:
            continue
        inputs = [cast(x, TYPES[name]) for x in arrays]
        got = retyped.run(retyped.retyped(model, TYPES[name], runnable=True), *inputs)
        for a, b in zip(got, want, strict=True):
            assert a.shape == b.shape
            if a.dtype == TYPES[name]:
                b = b.astype(np.float64)
                allowed = {"float16": 2e-2, "float64": 1e-5}[name] * max(1, abs(b[np.isfinite(b)]).max(initial=0))
                np.testing.assert_allclose(a.astype(np.float64), b, rtol=0, atol=allowed)
        if operator in LACKING[elem]:
            with monkeypatch.context() as patch:
                patch.setitem(LACKING, elem, {})
                lacking.append(runs(retyped.retyped(model, TYPES[name]), inputs) is None)
    assert not lacking or any(lacking)
