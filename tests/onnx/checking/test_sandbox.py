"""Each way in which a foreign runtime can go wrong becomes a sentence, by workers that go wrong on purpose."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
import minorm.onnx as mo
from minorm import nn

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from minorm.onnx.checking import sandbox  # noqa: E402

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
linux = pytest.mark.skipif(sys.platform != "linux", reason="limits on memory and signals are those of Linux")


def relu() -> Any:
    return mo.export(nn.ReLU(), mn.Tensor(X), None)


def shaped(proto: Any, rank: int, dtype: int = 1) -> Any:
    """The checker insists on the type and shape of the output."""
    del proto.graph.output[:]
    proto.graph.output.append(onnx.helper.make_tensor_value_info("y", dtype, [None] * rank))
    return proto


def worker(path: Path, begun: str, then: str) -> tuple[str, ...]:
    """A worker that says it began a stage, and then does something else."""
    before = [f'progress.write(\'{{"begin": "{begun}"}}\\n\')'] if begun else []
    code = [
        "import json, os, resource, signal, sys, time",
        "request = json.load(open(os.path.join(sys.argv[1], 'request.json')))",
        "resource.setrlimit(resource.RLIMIT_AS, (request['memory'],) * 2)",
        "progress = open(os.path.join(sys.argv[1], 'progress'), 'w', buffering=1)",
        *before,
        then,
    ]
    file = path / "worker.py"
    file.write_text("\n".join(code), encoding="utf-8")
    return sys.executable, "-P", str(file)


def test_outputs_come_back_in_order_and_the_feeds_are_left_alone() -> None:
    proto = mo.export(lambda x: (F.relu(x), x + 1), mn.Tensor(X), None)
    feed = X.copy()
    answer = sandbox.ask(proto, {"x": feed})
    assert answer.failure is None
    assert list(answer.stages) == ["checker", "load", "run", "answer"]
    assert answer["run"].passed
    assert answer["run"].seconds >= 0
    np.testing.assert_array_equal(answer.outputs[0], np.maximum(X, 0))
    np.testing.assert_array_equal(answer.outputs[1], X + 1)
    np.testing.assert_array_equal(feed, X)


def test_a_path_is_read_where_it_lies_and_need_not_be_run(tmp_path: Path) -> None:
    mo.export(nn.ReLU(), mn.Tensor(X), tmp_path / "model.onnx")
    answer = sandbox.ask(tmp_path / "model.onnx")
    assert list(answer.stages) == ["checker", "load"]
    assert answer.outputs is None
    assert not answer["run"].passed
    assert list(sandbox.ask(tmp_path / "model.onnx", checker="", run=False).stages) == []


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64, np.int64, np.bool_])
def test_every_type_and_shape_goes_through(dtype: Any, shape: tuple[int, ...], graph_of: Any) -> None:
    x = np.ones(shape, dtype)
    proto = mo.export(lambda x: x.reshape(*x.shape, 1), mn.Tensor(x), None, dynamic_axes={})
    (y,) = sandbox.ask(proto, {"x": x}, checker="").outputs
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y, x.reshape(*shape, 1))


def test_what_checker_and_runtime_say_against_a_model_is_kept(graph_of: Any) -> None:
    bad = graph_of([onnx.helper.make_node("Relu", ["x", "x"], ["y"])], {"x": (np.float32, [2, 3])}, ["y"])
    answer = sandbox.ask(bad, {"x": X})
    assert list(answer.stages) == ["checker"]
    assert "the checker of onnx 1." in answer["checker"].text
    assert "rejects the model" in answer["checker"].text
    answer = sandbox.ask(bad, {"x": X}, checker="")
    assert answer.failure is not None
    assert answer.failure[0] == "load"
    assert "onnxruntime 1." in answer.failure[1].text
    answer = sandbox.ask(relu(), {"x": X[0]})
    assert "fails on this model" in answer["run"].text


@linux
@pytest.mark.parametrize(
    ("then", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGFPE)", "crashed (SIGFPE)"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "crashed (SIGSEGV)"),
        ("os.abort()", "crashed (SIGABRT)"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed (SIGKILL), perhaps because the machine ran out of memory"),
        ("os._exit(7)", "ended the process (exit status 7)"),
        ("pass", "ended without an answer"),
        ("progress.write('{\"be')", "ended without an answer"),
    ],
)
def test_a_crash_is_a_sentence(then: str, said: str, tmp_path: Path) -> None:
    answer = sandbox.ask(relu(), {"x": X}, worker=worker(tmp_path, "run", then))
    assert answer.failure is not None
    name, stage = answer.failure
    assert name == "run"
    assert stage.text == f"{sandbox.version('onnxruntime')} {said}"
    assert answer.outputs is None


@linux
def test_a_crash_in_the_checker_is_told_apart(tmp_path: Path) -> None:
    answer = sandbox.ask(relu(), {"x": X}, worker=worker(tmp_path, "checker", "os.abort()"))
    assert answer["checker"].text == f"the checker of {sandbox.version('onnx')} crashed (SIGABRT)"
    answer = sandbox.ask(relu(), {"x": X}, worker=worker(tmp_path, "", "raise ValueError('broken install')"))
    assert "could not be started: ValueError: broken install" in answer["checker"].text


@linux
def test_who_hangs_is_stopped(tmp_path: Path) -> None:
    begin = time.monotonic()
    for how in ("time.sleep(600)", "while True: pass"):
        answer = sandbox.ask(relu(), {"x": X}, seconds=1, worker=worker(tmp_path, "run", how))
        assert "gave no answer in 1 seconds and was stopped" in answer["run"].text
    assert time.monotonic() - begin < 30


@linux
def test_who_wants_too_much_memory_is_refused(tmp_path: Path) -> None:
    eats = "held = [bytearray(1 << 26) for _ in range(1 << 14)]"  # 1 TiB
    report = f"""
try:
    {eats}
except MemoryError as error:
    progress.write('{{"failed": "run", "why": "MemoryError: "}}\\n')
"""
    answer = sandbox.ask(relu(), {"x": X}, memory=1 << 29, worker=worker(tmp_path, "run", report))
    assert "needs more than the 0.5 GiB of memory it may take" in answer["run"].text


@linux
def test_onnxruntime_itself_is_held_to_the_limit(graph_of: Any) -> None:
    big = graph_of(
        [
            onnx.helper.make_node("Expand", ["x", "shape"], ["wide"]),
            onnx.helper.make_node("ReduceSum", ["wide"], ["y"], keepdims=0),
        ],
        {"x": (np.float32, [1])},
        ["y"],
        {"shape": np.array([1 << 33])},
    )
    with pytest.raises(mo.VerifyError, match=r"onnxruntime .* needs more than the 4 GiB of memory it may take"):
        mo.verify(shaped(big, 0), [np.ones(1, np.float32)], [np.float32(1)])


@linux
def test_a_model_that_really_crashes_onnxruntime_is_an_answer(graph_of: Any) -> None:
    """A division by zero in C++, in onnxruntime 1.31; a version that has learned better rejects the model."""
    node = onnx.helper.make_node("DepthToSpace", ["x"], ["y"], blocksize=2**32)
    crash = graph_of([node], {"x": (np.float32, [1, 4, 2, 2])}, ["y"], opset=13)
    answer = sandbox.ask(crash, {"x": np.ones((1, 4, 2, 2), np.float32)}, checker="")
    assert answer.failure is not None
    assert any(word in answer.failure[1].text for word in ("crashed (SIGFPE)", "rejects the model", "fails on"))


@linux
def test_an_export_that_does_not_verify_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "WORKER", worker(tmp_path, "load", "os.abort()"))
    for external in (None, True):
        with pytest.raises(mo.VerifyError, match=r"export: onnxruntime .* crashed \(SIGABRT\)"):
            mo.export(nn.Linear(3, 400), mn.Tensor(X), tmp_path / "m.onnx", verify=True, external_data=external)
        assert os.listdir(tmp_path) == ["worker.py"]


def test_statistics_that_nobody_fetches_do_not_spoil_the_result(graph_of: Any) -> None:
    """onnxruntime merges equal initializers and then updates them in place, unless the new ones are fetched."""
    from onnx import helper

    names = ["s", "b", "m", "v"]
    node = helper.make_node("BatchNormalization", ["x", *names], ["y", "nm", "nv"], training_mode=1)
    ones, zeros = np.ones(3, np.float32), np.zeros(3, np.float32)
    proto = graph_of(
        [node], {"x": (np.float32, [2, 3])}, ["y"], {"s": ones, "b": zeros, "m": zeros, "v": ones}, opset=15
    )
    x = np.random.default_rng(0).normal(3, 2, (2, 3)).astype(np.float32)
    want = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)
    report = mo.verify(shaped(proto, 2), [x], [want.astype(np.float32)])
    assert len(report.outputs) == 1


def test_types_and_lengths_of_graphs_inside_nodes_and_of_functions(graph_of: Any) -> None:
    body = onnx.helper.make_function(
        "mine", "f", ["a"], ["b"], [onnx.helper.make_node("Concat", ["a", "a"], ["b"], axis=1)],
        [onnx.helper.make_opsetid("", 17)],
    )  # fmt: skip
    inside = [onnx.helper.make_graph(
        [onnx.helper.make_node("Transpose", ["x"], [name])], name, [],
        [onnx.helper.make_tensor_value_info(name, 1, None)]) for name in ("t", "e")]  # fmt: skip
    nodes = [
        onnx.helper.make_node("f", ["x"], ["m"], domain="mine"),
        onnx.helper.make_node("If", ["yes"], ["y"], then_branch=inside[0], else_branch=inside[1]),
    ]
    model = graph_of(nodes, {"x": (np.float32, ["n", 3])}, ["m", "y"], {"yes": np.array(True)}, functions=[body],
                     domains=["mine"])  # fmt: skip
    found = sandbox.infer(model)
    assert found[""]["m"] == [1, ["n", 6]]
    assert found["/1.then_branch"]["t"] == [1, [3, "n"]]
    assert found["mine:f:"] == {"a": [1, ["n", 3]], "b": [1, ["n", 6]]}


def test_inference_that_fails_knows_nothing(graph_of: Any) -> None:
    model = graph_of([], {}, [])
    assert sandbox.infer(model, seconds=0.001) == {}


def test_of_each_group_the_first_size_that_runs(graph_of: Any) -> None:
    model = graph_of([onnx.helper.make_node("Reshape", ["x", "shape"], ["y"])], {"x": (np.float32, ["n"])}, ["y"],
                     {"shape": np.array([2, -1])})  # fmt: skip
    sizes = [{"inputs": {"x": (1, [n])}, "high": 1} for n in (3, 4, 6)]
    taken, refused = sandbox.try_all(model, [sizes, sizes[:1]])
    assert (taken.taken, len(taken.errors), taken.outputs[0].shape) == (1, 1, (2, 2))
    assert (refused.taken, refused.outputs) == (None, ())
    drawn = np.random.default_rng(0).standard_normal(4).astype(np.float32)
    np.testing.assert_array_equal(taken.outputs[0].reshape(-1), drawn)
    stage = sandbox.try_all(
        graph_of([onnx.helper.make_node("Mystery", ["x"], ["y"])], {"x": (np.int64, [1])}, ["y"]), []
    )
    assert not stage.passed


def test_a_shape_of_millions_of_axes_is_not_told(graph_of: Any) -> None:
    for rank in (64, 65):
        model = graph_of([onnx.helper.make_node("Reshape", ["x", "shape"], ["y"])], {"x": (np.float32, [1])}, ["y"],
                         {"shape": np.ones(rank, np.int64)})  # fmt: skip
        del model.graph.output[0].type.tensor_type.shape.dim[:]
        model.graph.output[0].type.tensor_type.ClearField("shape")
        elem, lengths = sandbox.infer(model)[""]["y"]
        assert (elem, lengths) == (1, [1] * 64 if rank == 64 else None)


@pytest.mark.parametrize("path", ["f\udcfc/m.onnx", "f/m\udcfc.onnx"])
def test_files_whose_names_are_not_utf_8(path: str, tmp_path: Path) -> None:
    """onnx and onnxruntime would take them for no text."""
    model = tmp_path / path
    model.parent.mkdir()
    model.write_bytes(relu().SerializeToString())
    answer = sandbox.ask(model, {"x": X})
    assert [stage.text for stage in answer.stages.values() if not stage.passed] == []
    assert answer.outputs is not None
    np.testing.assert_array_equal(answer.outputs[0], np.maximum(X, 0))
