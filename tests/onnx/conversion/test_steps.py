"""Every rule between two versions of an operator, up and down: the new node computes what the old one did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnx.reference")

from onnx import helper  # noqa: E402

import minorm.onnx as mo  # noqa: E402
from minorm.onnx.checking import verification  # noqa: E402
from minorm.onnx.conversion import steps  # noqa: E402
from minorm.onnx.graph.registry import CONVERTERS  # noqa: E402

rng = np.random.default_rng(0)


def f(*shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def i(*values: int) -> Any:
    return np.array(values, np.int64)


X, M, V = f(2, 4, 6, 5), f(3, 4), f(5)
HALF = np.float16
NAN = np.array([1, 2, np.nan, np.inf, -np.inf, 3], np.float32)
OTHER = np.array([1, 3, np.nan, np.inf, 0, np.nan], np.float32)
EMPTY = np.zeros(0, np.float32)

# operator, opset, inputs (None: left out), which of them the file fixes, targets, attributes, number of outputs
Case = tuple[str, int, list[Any], tuple[int, ...], tuple[int, ...], dict[str, Any], int]


def case(
    op: str, opset: int, inputs: list[Any], fixed: Any = (), targets: Any = (), n: int = 1, **attributes: Any
) -> Case:
    return op, opset, inputs, tuple(fixed), tuple(targets), attributes, n


def cases() -> Iterator[Case]:
    for op in ("Add", "Sub", "Mul", "Div"):
        yield case(op, 6, [X, f(4, 6)], (), (7, 13), broadcast=1, axis=1)
        yield case(op, 1, [X, f(5)], (), (7, 22), broadcast=1, consumed_inputs=[0, 0])
    for op in ("Greater", "Less", "Pow"):
        yield case(op, 1, [abs(X), f(4)], (), (7, 15), broadcast=1, axis=1)
    for op in ("And", "Or", "Xor"):
        yield case(op, 1, [X > 0, f(4) > 0], (), (7,), broadcast=1, axis=1)
    yield case("Equal", 1, [i(1, 2, 3), i(1, 3, 3)], (), (7, 13))
    yield case("Equal", 13, [NAN, OTHER], (), (7, 9, 11))
    yield case("GreaterOrEqual", 16, [NAN, OTHER], (), (7, 9, 11, 12))
    yield case("LessOrEqual", 12, [NAN, OTHER], (), (7, 11, 16))
    yield case("LessOrEqual", 12, [i(1, 2, 3), i(2, 2, 2)], (), (9, 11))
    yield case("Gemm", 6, [M, f(4, 2), f(2)], (), (7, 13), broadcast=1)
    yield case("Gemm", 13, [M, f(4, 2)], (), (7, 9, 11))
    yield case("PRelu", 6, [X, f(4)], (1,), (7, 16))
    for op in ("Sum", "Max", "Min", "Mean"):
        yield case(op, 13, [X, f(6, 1)] if op in ("Sum", "Mean") else [X, f(1)], (1,), (7, 8))
        yield case(op, 13, [X, X], (), (7,))
    for op in ("Max", "Min"):
        yield case(op, 13, [i(1, 5, -3), i(2)], (), (9, 11))
    yield case("Pow", 13, [abs(X), i(2)], (), (7, 11))
    yield case("Clip", 6, [X], (), (11, 13), min=-0.5, max=0.5)
    yield case("Clip", 13, [X, np.float32(-0.5), None], (1,), (7, 11))
    yield case("Clip", 13, [X, None, np.float32(0.5)], (), (8, 10))
    yield case("Clip", 12, [i(-5, 0, 5), i(-1)[0], i(1)[0]], (1, 2), (9, 11))
    yield case("Cast", 1, [X], (), (7, 13), to="INT32")
    yield case("CastLike", 15, [X, i(1)], (), (9, 13, 21))
    yield case("Mod", 28, [X, V], (), (13, 10), fmod=1)
    for op in ("L1", "L2", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare", "Sum"):
        yield case(f"Reduce{op}", 11, [X], (), (13, 18), axes=[1, -1], keepdims=0)
        yield case(f"Reduce{op}", 18, [X, i(-1, 1)], (1,), (7, 11, 13), keepdims=0)
    yield case("ReduceLogSum", 11, [abs(X)], (), (18,), axes=[1])
    yield case("ReduceLogSum", 18, [abs(X), i(1)], (1,), (7, 13))
    yield case("ReduceMean", 18, [X], (), (7,), noop_with_empty_axes=1)
    yield case("ReduceMean", 18, [X], (), (7,))
    yield case("Squeeze", 11, [f(2, 1, 3, 1)], (), (13, 21), axes=[1, -1])
    yield case("Squeeze", 13, [f(2, 1, 3, 1), i(-1, 1)], (1,), (7, 11))
    yield case("Unsqueeze", 11, [M], (), (13, 21), axes=[0, -1])
    yield case("Unsqueeze", 13, [M, i(-1, 0)], (1,), (7, 11))
    yield case("Reshape", 1, [M], (), (7, 14), shape=[2, -1])
    yield case("Reshape", 14, [M, i(2, -1)], (1,), (7, 13), allowzero=1)
    yield case("Shape", 15, [X], (), (7, 10, 13), start=1, end=-1)
    yield case("Tile", 1, [M, i(3), i(1)], (1, 2), (7, 13))
    yield case("Expand", 8, [f(1, 4), i(3, 4)], (1,), (7,))
    yield case("Concat", 1, [M, M], (), (7, 13))
    yield case("Concat", 11, [M, M], (), (7,), axis=-1)
    yield case("Flatten", 11, [X], (), (7, 9), axis=-2)
    yield case("ArgMax", 11, [X], (), (7,), axis=-1)
    yield case("Split", 1, [M, i(1, 2)], (1,), (7, 13), 2)
    yield case("Split", 11, [M], (), (13, 18), 2, axis=1, split=[1, 3])
    yield case("Split", 13, [M, i(1, 3)], (1,), (7, 11), 2, axis=-1)
    yield case("Split", 13, [M], (), (18, 22), 2, axis=1)
    yield case("Split", 18, [f(7, 3)], (), (7, 13), 3, num_outputs=3)
    yield case("Split", 18, [f(7, 3)], (), (7, 13), 4, num_outputs=4)
    yield case("Slice", 1, [X], (), (10, 11, 13), starts=[1, -3], ends=[9, -1], axes=[1, 2])
    yield case("Slice", 13, [X, i(1, -3), i(9, -1), i(1, -2), i(1, 1)], (1, 2, 3, 4), (7, 9, 10))
    yield case("Slice", 13, [X, i(1, -1), i(9, -9), i(1, -2), i(1, -2)], (3,), (10,))
    yield case("Constant", 12, [], (), (7, 9, 11), value_ints=[1, 2, 3])
    yield case("Constant", 13, [], (), (7, 11), value_float=2.5)
    yield case("ConstantOfShape", 20, [i(2, 3)], (0,), (7, 8, 9), value=helper.make_tensor("v", 1, [1], [2.0]))
    yield case("ConstantOfShape", 9, [i(2, 3)], (), (8,), value=helper.make_tensor("v", 7, [1], [2]))
    yield case("Range", 11, [i(2)[0], i(7)[0], i(1)[0]], (2,), (9, 10))
    yield case("Range", 11, [i(7)[0], i(2)[0], i(1)[0]], (2,), (9,))
    yield case("Range", 11, [np.float32(1), np.float32(2), np.float32(0.25)], (0, 1, 2), (7,))
    for upper, k in ((0, 1), (1, -1)):
        yield case("Trilu", 14, [X, i(k)[0]], (1,), (9, 11, 13), upper=upper)
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        yield case(op, 11, [X], (), (13, 22))
        yield case(op, 11, [X], (), (7, 13), axis=-1)
        yield case(op, 13, [X], (), (7, 11), axis=1)
        yield case(op, 13, [X], (), (7, 11))
    for approximate in ("none", "tanh"):
        yield case("Gelu", 20, [X], (), (7, 9, 19), approximate=approximate)
    yield case("Erf", 13, [3 * X], (), (7, 9))
    yield case("HardSwish", 22, [3 * X], (), (7, 13, 14))
    yield case("Mish", 22, [3 * X], (), (7, 17, 18))
    yield case("Swish", 24, [3 * X], (), (7, 23), alpha=1.5)
    yield case("Celu", 12, [3 * X], (), (7, 11), alpha=0.5)
    yield case("ThresholdedRelu", 10, [np.where(abs(X) > 2, np.inf, X).astype(np.float32)], (), (9,), alpha=0.5)
    yield case("LayerNormalization", 17, [X + 5, V, V], (), (7, 13, 16), 3)
    yield case("LayerNormalization", 17, [X, f(6, 5)], (), (7, 16), axis=2)
    yield case("RMSNormalization", 23, [X, V], (), (7, 22))
    yield case("MeanVarianceNormalization", 13, [X + 10], (), (7, 9))
    yield case("GroupNormalization", 21, [X, f(4), f(4)], (), (7, 13, 18), num_groups=2)
    yield case("GroupNormalization", 18, [X, f(2), f(2)], (), (7, 17, 21), num_groups=2)
    yield case("Gather", 13, [X, i(0, -1)], (1,), (7, 10), axis=2)
    yield case("Gather", 13, [X, i(0, -1)], (), (7, 9, 11), axis=-2)
    yield case("Scatter", 9, [M, i(2, 0).reshape(1, 2), f(1, 2)], (), (11, 18))
    yield case("ScatterElements", 18, [M, i(-1, 0).reshape(1, 2), f(1, 2)], (), (9, 13), axis=-1)
    yield case("ScatterElements", 18, [M, i(1, 1).reshape(1, 2), f(1, 2)], (), (16,), reduction="add")
    yield case("ScatterND", 18, [M, i(1, 1).reshape(2, 1), f(2, 4)], (), (11, 13))
    yield case("OneHot", 9, [i(1, -1, 2), i(4), i(0, 1)], (), (11, 13))
    yield case("OneHot", 11, [i(1, -1, 2, -9, 4), i(4), f(2)], (), (9,), axis=-2)
    yield case("TopK", 1, [M], (), (10, 11, 24), 2, k=2)
    yield case("TopK", 11, [M, i(2)], (1,), (7, 10), 2, largest=0)
    yield case("MaxPool", 12, [f(1, 2, 7, 8)], (), (7, 8, 9), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    yield case("AveragePool", 11, [f(1, 2, 7, 7)], (), (7, 9), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    yield case("LpPool", 1, [X], (), (7, 18), kernel_shape=[2, 2], p=2.0)
    yield case("GlobalLpPool", 1, [X], (), (7, 22), p=1.0)
    seq, w, r = f(5, 2, 3), f(1, 16, 3), f(1, 16, 4)
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        inputs = [seq, w[:, : 4 * gates], r[:, : 4 * gates]]
        yield case(op, 14, inputs, (), (7, 22), 2, hidden_size=4, layout=1)
        yield case(op, 1, inputs, (), (7, 14), 2, hidden_size=4, output_sequence=1)
    yield case("Upsample", 1, [X], (), (7, 9, 13), height_scale=2.0, width_scale=3.0, mode="nearest")
    yield case("Upsample", 7, [X], (), (9, 11, 18), scales=[1.0, 1.0, 2.0, 2.0], mode="linear")
    scales, roi = np.array([1, 1, 2, 2], np.float32), EMPTY
    yield case("Upsample", 9, [X, scales], (1,), (7, 10, 13))
    yield case("Resize", 10, [X, scales], (1,), (7, 9, 11, 19), mode="linear")
    yield case("Resize", 10, [X, scales / 4], (1,), (13,))
    yield case(
        "Resize",
        11,
        [X, roi, roi, i(2, 4, 9, 9)],
        (1, 2),
        (13, 19),
        nearest_mode="floor",
        coordinate_transformation_mode="tf_half_pixel_for_nn",
    )
    yield case(
        "Resize",
        13,
        [X, None, scales],
        (2,),
        (7, 10, 11),
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    yield case("Resize", 13, [X, None, None, i(2, 4, 9, 9)], (), (11,), mode="linear")
    yield case("Resize", 19, [X, None, scales[2:]], (2,), (11, 13), axes=[2, -1], mode="cubic")
    for mode in ("half_pixel", "align_corners", "pytorch_half_pixel"):
        yield case(
            "Resize",
            13,
            [X, None, None, i(2, 4, 9, 3)],
            (3,),
            (7, 10),
            mode="linear",
            coordinate_transformation_mode=mode,
        )
    yield case("Resize", 13, [X, None, None, i(2, 4, 4, 9)], (3,), (7,), mode="cubic", cubic_coeff_a=-0.5)
    yield case("Resize", 13, [X, None, None, i(2, 4, 4, 9)], (3,), (7,), nearest_mode="ceil")
    yield case("Resize", 18, [X, None, None, i(9, 7)], (), (11, 13), axes=[3, 2], mode="linear")
    yield case("Pad", 1, [M], (), (7, 11, 18), paddings=[0, 1, 2, 0], value=1.5)
    yield case("Pad", 13, [M, i(0, 1, 2, 0), np.float32(1.5)], (1, 2), (7, 10))
    yield case("Pad", 18, [X, i(1, 2), None, i(-1)], (1, 3), (7, 13, 17), mode="reflect")
    yield case("Pad", 19, [X, i(1, 2), None, i(-1)], (3,), (11, 13), mode="edge")
    yield case("DepthToSpace", 11, [f(1, 8, 2, 3)], (), (7, 10), blocksize=2, mode="CRD")
    yield case("SpaceToDepth", 28, [f(1, 2, 4, 6)], (), (7, 13), blocksize=2, mode="CRD")
    grid = f(1, 3, 3, 2)
    yield case("GridSample", 16, [f(1, 2, 5, 5), grid], (), (20, 22), mode="bicubic")
    yield case("GridSample", 22, [f(1, 2, 5, 5), grid], (), (16, 20), mode="cubic")
    boxes = [f(1, 2, 8, 8), np.array([[0, 0, 5, 5]], np.float32), i(0)]
    yield case("RoiAlign", 10, boxes, (), (16, 22), output_height=2, output_width=2)
    yield case(
        "RoiAlign",
        16,
        boxes,
        (),
        (10,),
        output_height=2,
        output_width=2,
        coordinate_transformation_mode="output_half_pixel",
    )
    signal = f(1, 8, 3, 1)
    yield case("DFT", 17, [signal], (), (20,), axis=2)
    yield case("DFT", 20, [signal, None, i(-2)[0]], (2,), (17, 19))
    q = rng.integers(0, 255, (2, 3, 4)).astype(np.uint8)
    yield case("DequantizeLinear", 13, [q, f(3), np.array([1, 2, 3], np.uint8)], (), (10, 12, 19), axis=1)
    yield case("DequantizeLinear", 13, [q, np.float32(0.5)], (1,), (10,))
    yield case("QuantizeLinear", 13, [X, np.float32(0.5), np.uint8(3)], (), (10, 19))
    yield case("Dropout", 13, [X, np.float32(0.3)], (1,), (7, 10, 12), 2)
    yield case("Dropout", 6, [X], (), (7, 12, 22), is_test=1)


ALL = list(cases())


@pytest.fixture(autouse=True)
def _inference_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """These models are ours; a process for each would take minutes."""
    monkeypatch.setattr("minorm.onnx.checking.sandbox.infer", in_this_process)


def model(entry: Case) -> Any:
    operator, opset, inputs, fixed, _, attributes, count = entry
    names = ["" if array is None else f"i{place}" for place, array in enumerate(inputs)]
    outputs = [f"o{place}" for place in range(count)]
    schema = onnx.defs.get_schema(operator, opset, "")
    graph = helper.make_graph(
        [helper.make_node(operator, names, outputs, name="node", **attributes)],
        "step",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype), np.shape(array)
            )
            for place, (name, array) in enumerate(zip(names, inputs, strict=True))
            if name and place not in fixed
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [onnx.numpy_helper.from_array(np.asarray(inputs[place]), names[place]) for place in fixed],
    )
    assert schema.since_version <= opset
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def results(proto: Any, feeds: dict[str, Any]) -> Any:
    """Return onnxruntime's results; None if it lacks the version."""
    feeds = {name: feeds[name] for name in (entry.name for entry in proto.graph.input)}
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    if copy.opset_import[0].version >= 7:
        try:
            session = verification.start(copy)
            if not isinstance(session, str):
                return verification.run(session, feeds)
        except mo.VerifyError:
            pass
    return None


@pytest.mark.parametrize("entry", ALL, ids=lambda e: f"{e[0]}-{e[1]}")
def test_a_node_at_other_opsets(entry: Case) -> None:
    old = model(entry)
    feeds = {f"i{place}": np.asarray(array) for place, array in enumerate(entry[2]) if array is not None}
    want = ONE_HOT_9 if entry[:2] == ("OneHot", 9) else results(old, feeds) or by_hand(entry)
    for target in entry[4]:
        new = mo.convert(old, opset_version=target)
        shaped = all(entry.type.tensor_type.HasField("shape") for entry in new.graph.output)
        if shaped and verification.how_to_check(new) == "full":  # no shape inference at opset 1
            verification.check(new)
        got = results(new, feeds)
        if got is None or want is None:
            continue
        for place, (a, b) in enumerate(zip(got, want, strict=False)):
            if entry[0] == "LSTM" and place > 1:
                continue
            assert a.dtype == b.dtype
            assert a.shape == b.shape, target
            np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=2e-5, atol=2e-5)


# A negative index is outside there; onnxruntime counts it from the end at every opset.
ONE_HOT_9 = [np.array([[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]])]


def by_hand(entry: Case) -> Any:
    """Compute the versions that onnxruntime does not have."""
    operator, _, inputs, _, _, attributes, _ = entry
    x = inputs[0] if inputs else None
    if operator in BINARY:
        second = inputs[1]
        if attributes.get("broadcast") and "axis" in attributes:
            second = second.reshape(second.shape + (1,) * (x.ndim - attributes["axis"] - second.ndim))
        return [BINARY[operator](x, second)]
    if operator == "PRelu":
        return [np.where(x < 0, x * inputs[1].reshape(-1, 1, 1), x)]
    if operator == "Cast":
        return [x.astype(np.int32)]
    if operator == "Reshape":
        return [x.reshape(attributes["shape"])] if "shape" in attributes else None
    if operator == "Tile":
        return [np.tile(x, (1, 3))]
    if operator == "Concat":
        return [np.concatenate(inputs, attributes.get("axis", 1))]
    if operator == "Split":
        return [x[:1], x[1:]]
    if operator == "Pad" and "paddings" in attributes:
        return [np.pad(x, ((0, 2), (1, 0)), constant_values=1.5)]
    if operator == "Upsample" and "height_scale" in attributes:
        return [x.repeat(2, 2).repeat(3, 3)]
    if operator == "TopK":
        order = np.argsort(-x, 1)[:, :2]
        return [np.take_along_axis(x, order, 1), order]
    if operator == "Gemm":
        return [x @ inputs[1] + inputs[2]]
    if operator == "Clip":
        return [x.clip(-0.5, 0.5)]
    if operator == "Dropout":
        return [x]
    if operator == "Swish":
        return [x / (1 + np.exp(-1.5 * x.astype(np.float64))).astype(np.float32)]
    if operator == "Mod":
        return [np.fmod(x, inputs[1])]
    if operator == "SpaceToDepth":
        return [x.reshape(1, 2, 2, 2, 3, 2).transpose(0, 1, 3, 5, 2, 4).reshape(1, 8, 2, 3)]
    return None


BINARY = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Greater": np.greater, "Less": np.less,
    "Pow": np.power, "And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor, "Equal": np.equal,
}  # fmt: skip


def test_the_cases_take_every_step_that_has_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = set()
    original = steps.step

    def step(d: Any, operator: str, old: int, new: int) -> None:
        taken.add((operator, old, new))
        original(d, operator, old, new)

    monkeypatch.setattr(steps, "step", step)
    for entry in ALL:
        for target in entry[4]:
            mo.convert(model(entry), opset_version=target)
    assert {key for key in CONVERTERS if not isinstance(key, str)} - taken == set()


def in_this_process(proto: Any) -> Any:
    from minorm.onnx.checking import sandbox_worker

    found: dict[str, Any] = {}
    sandbox_worker._collect(sandbox_worker._inferred(proto).graph, "", found)
    return found


def signature(schema: Any) -> Any:
    return (
        [p.option for p in schema.inputs],
        [p.option for p in schema.outputs],
        {n: (a.type, a.required, str(a.default_value)) for n, a in schema.attributes.items()},
        (schema.min_input, schema.max_input, schema.min_output, schema.max_output),
    )


# Kept its signature, and is no plain step: read in the texts of ONNX 1.23.
MEANS_SOMETHING_ELSE = {
    ("PRelu", 6, 7), ("Sum", 6, 8), ("Max", 6, 8), ("Min", 6, 8), ("Mean", 6, 8), ("Max", 8, 12), ("Min", 8, 12),
    ("Pow", 7, 12), ("Equal", 7, 11), ("Clip", 11, 12), ("Mod", 13, 28), ("Gather", 1, 11), ("Scatter", 9, 11),
    ("OneHot", 9, 11), ("Slice", 10, 11), ("Pad", 18, 19), ("Resize", 18, 19), ("Upsample", 9, 10),
    ("ScatterElements", 16, 18), ("ScatterND", 16, 18), ("Constant", 1, 9), ("OptionalGetElement", 15, 18),
}  # fmt: skip


def test_neighbouring_versions_with_one_signature_are_plain_steps_but_for_a_list() -> None:
    same, others = set(), set()
    for operator in {schema.name for schema in onnx.defs.get_all_schemas_with_history() if not schema.domain}:
        versions = steps.published(operator)
        for old, new in zip(versions, list(versions)[1:], strict=False):
            key = (operator, old, new)
            (same if signature(versions[old]) == signature(versions[new]) else others).add(key)
    ruled = {tuple(k) for k in (*CONVERTERS, *steps.CHANGED) if not isinstance(k, str)}
    both = {(operator, min(a, b), max(a, b)) for operator, a, b in ruled if a and b}
    assert same & both == MEANS_SOMETHING_ELSE
    assert (len(same), len(others)) == (299, 127)
    assert {key for key in both if key not in same} <= others


@pytest.mark.parametrize(("n", "count", "wanted"), [
    (5, 4, [2, 2, 1, 0]), (3, 5, [1, 1, 1, 0, 0]), (9, 4, [3, 3, 3, 0]), (7, 4, [2, 2, 2, 1]), (6, 3, [2, 2, 2]),
])  # fmt: skip
@pytest.mark.parametrize("free", [False, True])
def test_a_split_whose_last_parts_are_empty(n: int, count: int, wanted: list[int], free: bool) -> None:
    """ceil(n / count) elements for each part as long as there are some, as the reference of onnx has it."""
    names = [f"y{place}" for place in range(count)]
    node = helper.make_node("Split", ["x"], names, "split", num_outputs=count)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", 1, ["n" if free else n, 2])],
        [helper.make_tensor_value_info(name, 1, [None, 2]) for name in names],
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    x = f(n, 2)
    want = onnx.reference.ReferenceEvaluator(proto).run(None, {"x": x})
    assert [len(part) for part in want] == wanted
    session = verification.start(mo.convert(proto, opset_version=13))
    for got, part in zip(verification.run(session, {"x": x}), want, strict=True):
        np.testing.assert_array_equal(got, part)
