"""Families of ONNX files that grow: each use takes time in proportion to the file's length, and little memory.

Each family is a function of n that makes a file of about n entries. It is loaded, run, differentiated, run by plan,
written back and converted at n and at four times n, in a separate process whose memory is watched.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import minorm as mn

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402  after importorskip

import minorm.onnx as mo  # noqa: E402

pytestmark = [
    pytest.mark.slow,  # test_bombs.py reads such files in the quick tests
    pytest.mark.skipif(sys.platform != "linux", reason="it reads a process's peak of memory as Linux counts it"),
]

MB = 1 << 20
Family = Callable[[int], Any]
FAMILIES: dict[str, Family] = {}
node = helper.make_node


def family(make: Family) -> Family:
    FAMILIES[make.__name__] = make
    return make


def names(n: int) -> list[str]:
    """Return the names of the values in a chain of n nodes."""
    return ["x", *(f"v{i}" for i in range(n - 1)), "y"]


def value(name: str, shape: Sequence[int] | None = None, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[Any],
    held: dict[str, Any] | None = None,
    outputs: Sequence[str] = ("y",),
    inputs: Sequence[str] = ("x",),
    functions: Sequence[Any] = (),
    **said: str,
) -> Any:
    """A file whose inputs are of shape (2, 4); `said` is minorm's own metadata."""
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in (held or {}).items()]
    ends = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(nodes, "g", [value(name, [2, 4]) for name in inputs], ends, tensors)
    opsets = [helper.make_opsetid("", 19), helper.make_opsetid("f", 1)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=9, functions=functions)
    if said:
        proto.producer_name = "minorm"
    for key, text in said.items():
        proto.metadata_props.add(key=f"minorm.{key}", value=text)
    return proto


ONES = np.ones(4, np.float32)


def chain(operator: str, extra: Sequence[str] = (), held: dict[str, Any] | None = None, **attributes: Any) -> Family:
    """Nodes of one operator, each on what the one before made."""
    return lambda n: model([node(operator, [a, *extra], [b], **attributes) for a, b in pairwise(names(n))], held)


def fan(operator: str, extra: Sequence[str], held: dict[str, Any]) -> Family:
    """Nodes of one operator that all read the same, and their sum."""

    def make(n: int) -> Any:
        nodes = [node(operator, ["x", *extra], [f"v{i}"]) for i in range(n)]
        return model([*nodes, node("Sum", [f"v{i}" for i in range(n)], ["y"])], held)

    return make


FAMILIES |= {
    "identities": chain("Identity"),
    "products": chain("Mul", ["w"], {"w": ONES}),
    "matrix_products": chain("Gemm", ["w"], {"w": np.eye(4, dtype=np.float32)}),
    "reshapes": chain("Reshape", ["shape"], {"shape": np.array([2, 4])}),
    "layer_norms": chain("LayerNormalization", ["w", "w"], {"w": ONES}),
    "batch_norms_of_one_name": chain("BatchNormalization", ["w"] * 4, {"w": ONES}, name="a"),
    "weights_read_often": fan("Mul", ["w"], {"w": ONES}),
    "squares": fan("Pow", ["two"], {"two": np.float32(2)}),
    "neutral_norms": lambda n: fan("LayerNormalization", ["w"], {"w": np.ones(4 * n, np.float32)})(n),
}


@family
def outputs(n: int) -> Any:
    return model([node("Relu", ["x"], [f"y{i}"]) for i in range(n)], outputs=[f"y{i}" for i in range(n)])


@family
def one_output(n: int) -> Any:
    return model([node("Relu", ["x"], ["y"])], outputs=["y"] * n)


@family
def inputs(n: int) -> Any:
    return model([node("Sum", [f"x{i}" for i in range(n)], ["y"])], inputs=[f"x{i}" for i in range(n)])


@family
def initializers_that_are_outputs(n: int) -> Any:
    held = {f"w{i}": ONES * i for i in range(n)}
    return model([node("Relu", ["x"], ["y"])], held, ["y", *held])


@family
def metadata(n: int) -> Any:
    proto = model([node("Relu", ["x"], ["y"])], frozen="[]")
    for i in range(n):
        proto.metadata_props.add(key=f"minorm.{i}" if i % 2 else f"other.{i}", value="1")
        proto.metadata_props.add(key="minorm.frozen", value="a" * 100)
    return proto


@family
def layers_of_ours(n: int) -> Any:
    nodes, held, ends = [], {"w": ONES}, ["y"]
    for i, (a, b) in enumerate(pairwise(names(n))):
        own = [f"l{i}.running_mean", f"l{i}.running_var"]
        new = [f"{name}.updated" for name in own]
        held |= dict.fromkeys(own, ONES)
        ends += new
        nodes.append(node("BatchNormalization", [a, "w", "w", *own], [b, *new], f"l{i}/Norm", training_mode=1))
    described = {f"l{i}": {"per_sample": False, "momentum": None, "unbiased": True} for i in range(n)}
    frozen = [f"l{i}" for i in range(0, n, 2)]
    return model(nodes, held, ends, training="true", frozen=json.dumps(frozen), statistics=json.dumps(described))


@family
def paths_that_fall_together(n: int) -> Any:
    """`forward.a_a.a` and the like: names that no module can have, which all become one."""
    found = itertools.islice(itertools.product("._", repeat=16), n)
    paths = ["forward." + "".join(f"a{sign}" for sign in signs) + "a" for signs in found]
    pairs = zip(pairwise(names(n)), paths, strict=True)
    return model([node("BatchNormalization", [a, *["w"] * 4], [b], path) for (a, b), path in pairs], {"w": ONES})


@family
def norms_written_out(n: int) -> Any:
    nodes = []
    for i, (a, b) in enumerate(pairwise(names(n))):
        nodes += [
            node("ReduceMean", [a, "last"], [f"m{i}"]), node("Sub", [a, f"m{i}"], [f"d{i}"]),
            node("Mul", [f"d{i}"] * 2, [f"s{i}"]), node("ReduceMean", [f"s{i}", "last"], [f"q{i}"]),
            node("Add", [f"q{i}", "eps"], [f"e{i}"]), node("Sqrt", [f"e{i}"], [f"r{i}"]),
            node("Div", [f"d{i}", f"r{i}"], [f"n{i}"]), node("Mul", [f"n{i}", "w"], [b]),
        ]  # fmt: skip
    return model(nodes, {"last": np.array([-1]), "eps": np.float32(1e-5), "w": ONES})


@family
def one_mean_for_many(n: int) -> Any:
    """x * k + (bias - mean * k), each with another k and the same mean."""
    nodes = [node("ReduceMean", ["x", "last"], ["m"])]
    for i in range(n):
        nodes += [
            node("Sub", ["x", "m"], [f"d{i}"]), node("Mul", [f"d{i}"] * 2, [f"s{i}"]),
            node("ReduceMean", [f"s{i}", "last"], [f"q{i}"]), node("Add", [f"q{i}", "eps"], [f"e{i}"]),
            node("Sqrt", [f"e{i}"], [f"r{i}"]), node("Reciprocal", [f"r{i}"], [f"i{i}"]),
            node("Mul", [f"i{i}", "w"], [f"k{i}"]), node("Mul", ["x", f"k{i}"], [f"a{i}"]),
            node("Mul", ["m", f"k{i}"], [f"b{i}"]), node("Sub", ["w", f"b{i}"], [f"c{i}"]),
            node("Add", [f"a{i}", f"c{i}"], [f"o{i}"]),
        ]  # fmt: skip
    last = node("Sum", [f"o{i}" for i in range(n)], ["y"])
    return model([*nodes, last], {"last": np.array([-1]), "eps": np.float32(1e-5), "w": ONES})


@family
def types_of_one_value(n: int) -> Any:
    nodes = [node("Relu", ["x"], ["r"])]
    for i in range(n):
        nodes += [node("CastLike", ["two", "r"], [f"c{i}"]), node("Pow", ["r", f"c{i}"], [f"p{i}"])]
    return model([*nodes, node("Sum", [f"p{i}" for i in range(n)], ["y"])], {"two": np.float32(2)})


@family
def calls_of_a_large_head(n: int) -> Any:
    opsets = [helper.make_opsetid("", 19), *(helper.make_opsetid(f"d{i}", 1) for i in range(n))]
    formals = ["a", *(f"a{i}" for i in range(n))]
    body = [node("Relu", ["a"], ["b"])]
    function = helper.make_function("f", "F", formals, ["b"], body, opsets, [f"k{i}" for i in range(n)])
    return model([node("F", [a], [b], domain="f") for a, b in pairwise(names(n))], functions=[function])


@family
def a_branch_of_many_nodes(n: int) -> Any:
    ends = [helper.make_empty_tensor_value_info("y")]
    body = helper.make_graph([node("Relu", [a], [b]) for a, b in pairwise(names(n))], "b", [], ends)
    branches: dict[str, Any] = {"then_branch": body, "else_branch": body}
    sign = [node("ReduceSum", ["x"], ["s"], keepdims=0), node("Greater", ["s", "zero"], ["k"])]
    return model([*sign, node("If", ["k"], ["z"], name="n" * n, **branches)], {"zero": np.float32(0)}, ["z"])


@family
def a_loop_around_many_weights(n: int) -> Any:
    ends = [helper.make_empty_tensor_value_info(name) for name in ("c", "v2")]
    given = [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), value("v")]
    body = helper.make_graph([node("Sum", ["v", *(f"w{i}" for i in range(n))], ["v2"])], "b", given, ends)
    held = {f"w{i}": ONES * i for i in range(n)}
    return model([node("Loop", ["turns", "", "x"], ["y"], body=body)], {**held, "turns": np.array(2)})


def try_all(contents: bytes) -> None:
    """Load, use and convert a file; only a ValueError may come."""
    with suppress(ValueError):
        use(contents)
    with suppress(ValueError):
        mo.convert(contents, opset_version=21)


def use(contents: bytes) -> None:
    """Load, run, differentiate and write back."""
    loaded = mo.load(contents)
    x = [mn.ones(2, 4) for _ in loaded.inputs]
    results = loaded(*x)
    first = results[0] if isinstance(results, tuple) else results
    if first.requires_grad:
        first.sum().backward()
    loaded.eval()
    with mn.no_grad():
        for _ in range(3):  # by plan, if the graph has one
            loaded(*x)
    mo.export(loaded, None)


def measured(contents: bytes) -> tuple[float, int, int]:
    """Seconds of processor time, bytes more than before at the peak, and the file's length."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before, start = peak(), time.process_time()
    try_all(contents)
    return time.process_time() - start, peak() - before, len(contents)


def peak() -> int:
    """The most bytes that this process held so far."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))


@pytest.mark.parametrize("name", FAMILIES)
def test_time_grows_as_the_file_does(name: str) -> None:
    done = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stderr[-2000:]
    (seconds, _, _), (longer, nbytes, length) = json.loads(done.stdout.splitlines()[-1])
    assert longer < 8 * max(seconds, 0.1), (seconds, longer)  # 4 where it is linear, 16 where it is quadratic
    assert nbytes < 64 * MB + 40 * length, (nbytes, length)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    grows = FAMILIES[sys.argv[1]]
    try_all(grows(3).SerializeToString())  # imports, and schemas that are looked up once
    print(json.dumps([measured(grows(n).SerializeToString()) for n in (500, 2000)]))
