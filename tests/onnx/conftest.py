"""`proved`: export a model, and prove everything the issue asks of the file.

The checker accepts it; every output of every node has a shape, and strict inference over the bare graph agrees;
initializers that are parameters have state_dict keys; onnxruntime computes what the model computes, on the given
batch and on another one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn
from minorm.devices import dtypes

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnx.reference")

import minorm.onnx as mo  # noqa: E402  after importorskip
from minorm.onnx.checking import verification  # noqa: E402
from minorm.onnx.graph import versions  # noqa: E402

NEWEST = min(versions.NEWEST, onnx.defs.onnx_opset_version())
OPSETS = range(versions.OLDEST_EXPORT, NEWEST + 1)
RUNS = versions.DEFAULTS[-1]  # the newest opset that onnxruntime runs
TOLERANCE = {"float64": 1e-9, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}


class Lambda(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def with_batch(x: mn.Tensor, n: int) -> mn.Tensor:
    rng = np.random.default_rng(5)
    if x.ndim == 0:
        return x
    picked = np.take(x.array, rng.integers(0, len(x.array), n), 0)
    return mn.Tensor(np.ascontiguousarray(picked))


def check_shapes(proto: Any) -> None:
    described = {v.name: v for v in [*proto.graph.value_info, *proto.graph.output]}
    for node in proto.graph.node:
        for name in node.output:
            if name:
                assert described[name].type.tensor_type.HasField("shape"), name
    if any(node.op_type == "MeanVarianceNormalization" for node in proto.graph.node):
        return  # strict inference fails inside its published body
    bare = onnx.ModelProto()
    bare.CopyFrom(proto)
    del bare.graph.value_info[:]
    inferred = onnx.shape_inference.infer_shapes(bare, check_type=True, strict_mode=True, data_prop=True)
    for value in inferred.graph.value_info:
        ours, theirs = described[value.name].type.tensor_type, value.type.tensor_type
        assert ours.elem_type == theirs.elem_type, value.name
        if theirs.HasField("shape"):
            assert len(ours.shape.dim) == len(theirs.shape.dim), value.name
            for a, b in zip(ours.shape.dim, theirs.shape.dim, strict=True):
                if a.HasField("dim_value") and b.HasField("dim_value"):
                    assert a.dim_value == b.dim_value, value.name


def runner(proto: Any, reference: bool) -> Callable[[Sequence[Any]], list[Any]] | None:
    """Return the oracle: onnxruntime, or onnx's reference for opsets that onnxruntime refuses; None if neither runs."""
    pytest.importorskip("onnxruntime")
    names = [entry.name for entry in proto.graph.input]
    session = verification.start(proto)
    if not isinstance(session, str):
        return lambda arrays: verification.run(session, dict(zip(names, map(np.array, arrays), strict=True)))
    if proto.opset_import[0].version > RUNS and reference:
        evaluator = onnx.reference.ReferenceEvaluator(proto)
        return lambda arrays: list(evaluator.run(None, dict(zip(names, arrays, strict=True))))
    return None


def compare(got: Sequence[Any], want: Sequence[Any], tolerance: float | None) -> None:
    for a, b in zip(got, want, strict=False):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        allowed = TOLERANCE.get(str(b.dtype), 0) if tolerance is None else tolerance
        b64 = b.astype(np.float64)
        scale = max(1.0, np.abs(b64[np.isfinite(b64)]).max(initial=0.0))
        np.testing.assert_allclose(a.astype(np.float64), b64, rtol=0, atol=allowed * scale)


def flat(result: Any) -> list[Any]:
    if isinstance(result, mn.Tensor):
        return [result.array]
    return [array for part in (result.values() if isinstance(result, dict) else result) for array in flat(part)]


def prove(
    model: Any,
    *args: mn.Tensor,
    opset: int | None = None,
    tolerance: float | None = None,
    batches: Sequence[int] = (3,),
    must_run: bool = True,
    reference: bool = True,
    **options: Any,
) -> Any:
    if not isinstance(model, nn.Module):
        model = Lambda(model)
    asked = RUNS if opset is None else opset
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        proto = mo.export(model, args, None, opset_version=asked, **options)
    verification.check(proto)
    check_shapes(proto)
    keys = set(model.state_dict())
    for tensor in proto.graph.initializer:
        assert tensor.name in keys or not any(tensor.name.startswith(key) for key in keys), tensor.name
    assert proto.opset_import[0].version == asked
    modes = {m: m.training for m in model.modules()}
    model.eval()
    run = runner(proto, reference)
    assert run is not None or not must_run or asked > RUNS, "onnxruntime does not run it"
    for n in (None, *batches) if run is not None else ():
        inputs = args if n is None else tuple(with_batch(x, n) for x in args)
        compare(run([x.array for x in inputs]), flat(model(*inputs)), tolerance)
    for module, mode in modes.items():
        module.training = mode
    return proto


@pytest.fixture
def proved() -> Callable[..., Any]:
    return prove


@pytest.fixture
def lived_in() -> Callable[[Any], Any]:
    """Fill a layer's parameters and buffers with numbers as after some training; return the layer."""

    def fill(layer: Any) -> Any:
        rng = np.random.default_rng(7)
        for tensor in layer.state_dict().values():
            floats = dtypes.is_float(tensor.dtype)
            tensor.array[...] = rng.uniform(0.5, 1.5, tensor.shape) if floats else 4
        return layer

    return fill


def one_node(
    operator: str,
    inputs: Sequence[Any],
    opset: int,
    outputs: Sequence[str] = ("y",),
    held: Sequence[int] = (),
    declared: Sequence[str] | None = None,
    **attributes: Any,
) -> Any:
    """A model of one node; input i is called `i0`, `i1` ..., None where absent; those in `held` are initializers.

    declared    the outputs of the graph: by default all of the node's, whose types are left to be found
    """
    from onnx import helper, numpy_helper

    names = ["" if array is None else f"i{i}" for i, array in enumerate(inputs)]
    arrays = {name: np.asarray(array) for name, array in zip(names, inputs, strict=True) if name}
    node = helper.make_node(operator, names, list(outputs), name="node", **attributes)
    results = [name for name in outputs if name] if declared is None else declared
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim)
            for name, array in arrays.items()
            if int(name[1:]) not in held
        ],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in results],
        [numpy_helper.from_array(arrays[f"i{i}"], f"i{i}") for i in held],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=versions.ir_version(opset)
    )


def graph_of(
    nodes: Sequence[Any],
    inputs: dict[str, tuple[Any, Any]],
    outputs: Sequence[str],
    initializers: dict[str, Any] | None = None,
    opset: int = 17,
    functions: Sequence[Any] = (),
    domains: Sequence[str] = (),
    **model: Any,
) -> Any:
    """A model: inputs are name -> (dtype, shape), initializers name -> array."""
    from onnx import helper, numpy_helper

    graph = helper.make_graph(
        list(nodes),
        "graph",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
            for name, (dtype, shape) in inputs.items()
        ],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (initializers or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    model = {"ir_version": max(8, versions.ir_version(opset)), **model}
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), **model)


@pytest.fixture(name="graph_of")
def _graph_of() -> Callable[..., Any]:
    return graph_of


@pytest.fixture(name="one_node")
def _one_node() -> Callable[..., Any]:
    return one_node


@pytest.fixture
def close() -> Callable[..., None]:
    """close(Tensor, float64 array): within a unit of the last place of its type, or `factor` of them."""
    units = {"float64": 1e-12, "float32": 1e-6, "float16": 1e-3, "bfloat16": 2**-7}

    def check(got: Any, want: Any, factor: float = 1.0) -> None:
        want = np.asarray(want, np.float64)
        assert got.shape == want.shape
        allowed = factor * units[str(got.dtype)] * np.maximum(1.0, abs(want))
        difference = abs(got.array.astype(np.float64) - want)
        assert (difference <= allowed).all(), difference.max()

    return check


@pytest.fixture
def numbers() -> Callable[[Any], dict[str, Any]]:
    """Return the tensors of a model by name: its initializers, then its constants."""

    def held(proto: Any) -> dict[str, Any]:
        tensors = {tensor.name: tensor for tensor in proto.graph.initializer}
        tensors |= {n.output[0]: n.attribute[0].t for n in proto.graph.node if n.op_type == "Constant"}
        return {name: onnx.numpy_helper.to_array(tensor) for name, tensor in tensors.items()}

    return held


@pytest.fixture
def operators() -> Callable[[Any], list[str]]:
    """Return the operators of a model in order; fixed numbers (Constant) do not count."""
    return lambda proto: [node.op_type for node in proto.graph.node if node.op_type != "Constant"]


def pytest_generate_tests(metafunc: Any) -> None:
    """Every test that takes `opset` runs at every opset."""
    given = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "opset" in metafunc.fixturenames and not any("opset" in names for names in given):
        metafunc.parametrize("opset", OPSETS)
