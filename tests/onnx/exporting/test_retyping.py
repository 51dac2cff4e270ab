"""A whole model in another float type computes what the converted module does, bit by bit, and runs in onnxruntime."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402

import minorm.onnx as mo  # noqa: E402
from minorm.onnx.exporting.retyping import retype  # noqa: E402
from tests.onnx import families, retyped  # noqa: E402
from tests.onnx.conftest import graph_of as model_of  # noqa: E402
from tests.onnx.conversion import test_families as free_sizes  # noqa: E402
from tests.onnx.retyped import TYPES, cast, difference  # noqa: E402

F32 = np.float32
FLOAT, DOUBLE, HALF, INT64 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT64
WITHIN = {"float16": 2e-2, "bfloat16": 8e-2, "float64": 1e-5, "float32": 1e-4}  # of the file, if that is no coarser
DECIMALS = {"float64": 1e-12}  # the eps of a layer is read as the decimal that a float32 stands for, a float64 as it is
ONE_ROUNDING = 2**-8  # of bfloat16
CLOSE = {"float16": 5e-3, "float64": 1e-6}  # of minorm; some nodes of a float64 model compute in float32


def is_wide(model: Any) -> bool:
    """Whether the file computes a convolution of bfloat16 in float32, as it must before opset 22.

    minorm adds up in the order of tiles then (docs/maths-narrow-types.md), and float32 in another.
    """
    casts = {node.output[0] for node in model.graph.node if node.op_type == "Cast"}
    return any(
        n.op_type in ("Conv", "ConvTranspose") and casts.issuperset(n.input[1:2]) for n in model.graph.node
    ) and any(a.i == onnx.TensorProto.BFLOAT16 for n in model.graph.node if n.op_type == "Cast" for a in n.attribute)


def prove(
    proto: Any,
    *arrays: Any,
    names: Any = ("float16", "bfloat16", "float64"),
    runs: bool = True,
    trainable: list[str] | None = None,
) -> dict[str, Any]:
    """The model in each type: against the converted module exactly, against the file, in onnxruntime."""
    file = mo.load(proto, trainable=trainable)
    want = retyped.results(file, *arrays)
    made = {}
    for name in names:
        dtype = np.dtype(TYPES[name])
        inputs = [cast(array, dtype) for array in arrays]
        module = mo.load(proto, trainable=trainable).to(dtype)
        new = made[name] = retyped.retyped(proto, dtype, module)
        assert [entry.name for entry in new.graph.output] == [entry.name for entry in proto.graph.output]
        expected = want if module.converted_to() is None else retyped.results(module, *inputs)
        got = retyped.results(mo.load(new, trainable=trainable), *inputs)
        if module.converted_to() is not None:
            assert difference(got, expected) <= (ONE_ROUNDING if is_wide(new) else DECIMALS.get(name, 0)), name
        within = max(WITHIN.get(kind, 0) for kind in (name, *(str(y.dtype) for y in want)))
        assert difference([cast(y, np.float64) for y in got], [cast(y, np.float64) for y in want]) <= within
        if runs and name in CLOSE:
            runnable = retyped.retyped(proto, dtype, module, runnable=True)
            assert difference(retyped.run(runnable, *inputs), got) <= CLOSE[name]
    return made


# Networks of PyTorch


def exported(module: Any, x: Any, opset: int, dynamo: bool) -> Any:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if dynamo:
            pytest.importorskip("onnxscript")
            torch.onnx.export(module, (x,), file, dynamo=True, opset_version=opset, verbose=False, external_data=False)
        else:
            torch.onnx.export(
                module, (x,), file, dynamo=False, opset_version=opset, input_names=["x"], dynamic_axes={"x": {0: "n"}}
            )
    return onnx.load_from_string(file.getvalue())


OLDEST = {"attention": 17}  # scaled_dot_product_attention, which older opsets do not have


@pytest.mark.parametrize("name", families.FAMILIES)
def test_a_network_by_both_exporters(name: str) -> None:
    torch.manual_seed(1)
    module, x = families.FAMILIES[name]()
    older = max(OLDEST.get(name, 9), (9, 13, 15, 17)[len(name) % 4])
    for opset, dynamo in ((older, False), (18 + len(name) % 4, True)):
        proto = exported(module.eval(), x, opset, dynamo)
        # Mish has bfloat16 from opset 22 on: in float32 it is rounded once, and not at every step.
        skipped = opset < 13 or any(node.op_type == "Mish" for node in proto.graph.node)
        prove(proto, x.numpy(), names=("float16", "float64") if skipped else ("float16", "bfloat16", "float64"))


FREE = [p for i, p in enumerate(free_sizes.networks()) if i % 3 != 1 and p.values[0] != "looping"]


@pytest.mark.parametrize(("name", "dynamo"), FREE)
def test_a_network_of_free_height_and_width(name: str, dynamo: bool) -> None:
    scripted = name in free_sizes.SCRIPTED
    module = torch.jit.script(free_sizes.SCRIPTED[name]().eval()) if scripted else free_sizes.FAMILIES[name]().eval()
    proto = free_sizes.exported(module, 18 if dynamo else 17, dynamo)
    largest = name == "masks"  # which element that is may change where 8 bits make two equal
    kinds = ("float16", "float64") if largest else ("float16", "bfloat16", "float64")
    prove(proto, np.random.default_rng(2).standard_normal((3, 3, 32, 48)).astype(F32), names=kinds)


def test_a_loop_that_minorm_does_not_load() -> None:
    proto = free_sizes.exported(torch.jit.script(free_sizes.Looping().eval()), 13, False)
    x = np.random.default_rng(2).standard_normal((3, 3, 8, 8)).astype(F32)
    want = retyped.run(proto, x)
    for name in ("float16", "float64"):
        new = retyped.retyped(proto, TYPES[name], runnable=True)
        [got] = retyped.run(new, cast(x, TYPES[name]))
        assert got.dtype == TYPES[name]
        assert difference([got.astype(F32)], want) <= WITHIN[name]
    retyped.retyped(proto, TYPES["bfloat16"])


@pytest.mark.parametrize("name", ["convolutions", "groups", "text", "rotary", "modulated"])
@pytest.mark.parametrize("first", ["float16", "float64", "bfloat16"])
def test_from_every_type_to_every_other(name: str, first: str) -> None:
    torch.manual_seed(1)
    module, x = families.FAMILIES[name]()
    proto = exported(module.eval(), x, 17, False)
    proto = retyped.retyped(proto, TYPES[first], mo.load(proto).to(TYPES[first]))
    prove(proto, cast(x.numpy(), TYPES[first]), names=set(TYPES) - {first}, runs=first != "bfloat16")


# Graphs by hand

make = helper.make_node
W = {"w": np.array([[0.5, 1], [2, -1]], F32)}
X = {"x": (F32, ["n", 2])}
THIRD = {"third": F32(1 / 3)}


def data() -> Any:
    return np.random.default_rng(0).normal(size=(3, 2)).astype(F32)


def operators(graph: Any) -> list[str]:
    return [node.op_type for node in graph.node]


def names(graph: Any) -> set[str]:
    return {tensor.name for tensor in graph.initializer}


def test_a_network_of_one_type_gets_no_node_and_keeps_all_names(graph_of: Any) -> None:
    nodes = [
        make("MatMul", ["x", "w"], ["h"], name="first"),
        make("Constant", [], ["half"], value_float=0.5),
        make("Mul", ["h", "half"], ["m"]),
        make("Cast", ["m"], ["c"], to=FLOAT),
        make("Relu", ["c"], ["y"]),
    ]
    proto = graph_of(nodes, X, ["y"], W)
    proto.graph.value_info.append(helper.make_tensor_value_info("h", FLOAT, ["n", 2]))
    new = prove(proto, data())["float16"]
    assert [n.name for n in new.graph.node] == [n.name for n in proto.graph.node]
    assert [list(n.output) for n in new.graph.node] == [list(n.output) for n in proto.graph.node]
    assert retyped.types_of(new) == {HALF}
    assert new.graph.value_info[0] == helper.make_tensor_value_info("h", HALF, ["n", 2])


def test_a_constant_that_both_kinds_of_nodes_read_is_there_twice(graph_of: Any) -> None:
    nodes = [
        make("Shape", ["x"], ["sizes"]), make("Cast", ["sizes"], ["floats"], to=FLOAT),
        make("Div", ["floats", "third"], ["d"]), make("ReduceMax", ["d"], ["most"], keepdims=0),
        make("MatMul", ["x", "w"], ["h"]), make("Mul", ["h", "third"], ["g"]), make("Mul", ["g", "most"], ["y"]),
    ]  # fmt: skip
    new = prove(graph_of(nodes, X, ["y", "third"], {**W, **THIRD}), data(), trainable=["w"])["float16"]
    held = {t.name: t.data_type for t in new.graph.initializer}
    assert held == {"w": HALF, "third": HALF, "third_float32": FLOAT}
    casts = [node for node in new.graph.node if node.op_type == "Cast"]
    assert [(list(node.input), node.attribute[0].i) for node in casts] == [(["sizes"], FLOAT), (["most"], HALF)]


def test_names_that_are_taken_are_not_taken_again(graph_of: Any) -> None:
    nodes = [
        make("MatMul", ["x", "w"], ["third_float16"]), make("Shape", ["x"], ["third_float32"]),
        make("Cast", ["third_float32"], ["c"], to=FLOAT), make("Mul", ["c", "third"], ["d"]),
        make("ReduceMax", ["d"], ["m"], keepdims=0), make("Mul", ["third_float16", "third"], ["e"]),
        make("Mul", ["e", "m"], ["y"]),
    ]  # fmt: skip
    new = prove(graph_of(nodes, X, ["y"], {**W, **THIRD}), data(), trainable=["w"])["float16"]
    assert names(new.graph) == {"w", "third", "third_float16_2"}


def test_lengths_that_float16_cannot_count_to(graph_of: Any) -> None:
    nodes = [
        make("Shape", ["x"], ["sizes"]), make("Cast", ["sizes"], ["n"], to=FLOAT), make("Mul", ["n", "k"], ["m"]),
        make("Cast", ["m"], ["new"], to=INT64), make("Mul", ["x", "s"], ["h"]), make("Reshape", ["h", "new"], ["y"]),
    ]  # fmt: skip
    proto = graph_of(nodes, {"x": (F32, ["n"])}, ["y"], {"k": F32(1), "s": np.ones(1, F32)})
    new = prove(proto, np.arange(2049, dtype=F32) / 2049, trainable=["s"])["float16"]
    assert operators(new.graph) == ["Shape", "Cast", "Mul", "Cast", "Mul", "Reshape"]


def test_what_onnx_prescribes_stays(graph_of: Any) -> None:
    """1025 / 1024 is 1 in float16. Values computed from data are cast back."""
    nodes = [
        make("Mul", ["x", "s"], ["h"]), make("Resize", ["h", "", "scales"], ["wide"], mode="nearest"),
        make("Mul", ["given", "s"], ["scaled"]), make("Resize", ["wide", "", "scaled"], ["y"], mode="nearest"),
    ]  # fmt: skip
    held = {"s": F32(1), "scales": np.array([1, 1, 1025 / 1024], F32)}
    proto = graph_of(nodes, {"x": (F32, [1, 1, "n"]), "given": (F32, [3])}, ["y"], held)
    x = np.random.default_rng(0).normal(size=(1, 1, 1024)).astype(F32)
    new = prove(proto, x, np.array([1, 1, 2], F32), names=("float16", "float64"), runs=False)["float16"]
    assert next(t for t in new.graph.initializer if t.name == "scales").data_type == FLOAT
    assert operators(new.graph) == ["Mul", "Resize", "Mul", "Cast", "Resize"]
    assert retyped.run(new, cast(x, np.float16), np.array([1, 1, 2], np.float16))[0].shape == (1, 1, 2050)


def test_an_operator_without_the_type_gets_casts_around_it(graph_of: Any) -> None:
    nodes = [make("MatMul", ["x", "w"], ["h"]), make("PRelu", ["h", "slope"], ["y"])]
    new = prove(graph_of(nodes, X, ["y"], {**W, "slope": np.full(2, 0.25, F32)}, opset=13), data())["bfloat16"]
    assert operators(new.graph) == ["Cast", "MatMul", "Cast", "PRelu", "Cast"]
    assert retyped.types_of(new) == {FLOAT, TensorProto.BFLOAT16}
    assert new.graph.node[-1].output == ["y"]


def test_bfloat16_before_opset_13_is_refused(graph_of: Any) -> None:
    proto = graph_of([make("MatMul", ["x", "w"], ["y"])], X, ["y"], W, opset=12)
    with pytest.raises(
        mo.ExportError, match="export: bfloat16 exists in ONNX from opset 13 on; the model has opset 12"
    ):
        retyped.retyped(proto, TYPES["bfloat16"])


def test_nodes_of_other_domains_are_named_together(graph_of: Any) -> None:
    nodes = [make("Foo", ["x"], ["a"], name="one", domain="strange"), make("Bar", ["a"], ["y"], domain="strange")]
    proto = graph_of(nodes, X, ["y"], domains=["strange"])
    want = r"2 nodes cannot be written in float16:\n  node 'one' \(Foo\): .* 'strange', .*\n  node 'y' \(Bar\)"
    with pytest.raises(mo.ExportError, match=want):
        retyped.retyped(proto, TYPES["float16"])


def test_nodes_that_narrow_a_float64_model_are_returned(graph_of: Any) -> None:
    nodes = [make("MatMul", ["x", "w"], ["h"]), make("Erf", ["h"], ["e"], name="erf"), make("Celu", ["e"], ["y"])]
    proto = graph_of(nodes, X, ["y"], W)
    copy = type(proto).FromString(proto.SerializeToString())
    assert retype(copy, np.dtype(np.float64), {}, ["w"], runnable=True) == ["node 'erf' (Erf)", "node 'y' (Celu)"]
    assert retype(proto, np.dtype(np.float64), {}, ["w"]) == ["node 'y' (Celu)"]


@st.composite
def graphs(draw: Any) -> list[Any]:
    """Nodes that mix data, lengths and constants at random."""
    nodes = [
        make("MatMul", ["x", "w"], ["v0"]),
        make("Shape", ["x"], ["sizes"]),
        make("Cast", ["sizes"], ["v1"], to=FLOAT),
    ]
    pool = ["v0", "v1", "third", "pair"]
    for number in range(2, draw(st.integers(3, 12))):
        name, kind = f"v{number}", draw(st.sampled_from(("binary", "abs", "cast", "round", "constant", "length")))
        a, b = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
        if kind == "binary":
            nodes.append(make(draw(st.sampled_from(("Add", "Sub", "Mul", "Max"))), [a, b], [name]))
        elif kind == "abs":
            nodes += [make("Abs", [a], [f"{name}_a"]), make("Sqrt", [f"{name}_a"], [name])]
        elif kind == "cast":
            to = draw(st.sampled_from((FLOAT, HALF, DOUBLE)))
            nodes += [make("Cast", [a], [f"{name}_c"], to=to), make("Cast", [f"{name}_c"], [name], to=FLOAT)]
        elif kind == "round":
            nodes += [make("Cast", [a], [f"{name}_i"], to=INT64), make("Cast", [f"{name}_i"], [name], to=FLOAT)]
        elif kind == "constant":
            nodes.append(make("Constant", [], [name], value_floats=[0.1, -0.7]))
        else:
            nodes += [make("Shape", [a], [f"{name}_s"]), make("ConstantOfShape", [f"{name}_s"], [name])]
        pool.append(name)
    return [*nodes, make("Sum", ["v0", pool[-1], pool[-2]], ["y"]), make("Identity", [pool[-1]], ["z"])]


@settings(max_examples=60, deadline=None)
@given(nodes=graphs())
def test_any_mixture_of_data_lengths_and_constants(nodes: list[Any]) -> None:
    held = {**W, **THIRD, "pair": np.array([0.3, 2.0], F32)}
    prove(model_of(nodes, X, ["y", "z"], held), data())
