"""benchmarks/gpu stands ready: its cases run on the double of CuPy, which tells nothing about speed; its supervisor
watches workers that fail in every way.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shim

import minorm as mn
from benchmarks.gpu import __main__, agreement, cases, device_timing, operations, report, training, work, worker
from benchmarks.gpu.cases import Case
from benchmarks.gpu.operations import FAMILIES

FEW = [("layer", (5, 7)), ("rms", (4, 8)), ("batch", (6, 4, 3, 3)), ("evaluation", (9, 4)), ("group", (2, 8, 3, 3)),
       ("instance", (2, 3, 4, 4))]  # fmt: skip
compiles = pytest.mark.skipif(not shim.available, reason="no g++")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    def once(function: Callable[[int], Any]) -> float:
        function(0)
        function(1)
        return 1.0

    monkeypatch.setattr(device_timing, "milliseconds", once)
    monkeypatch.setattr(work, "microseconds", lambda call, calls=1, wait=False: float(call() is None))
    monkeypatch.setattr(work, "copy_rate", lambda: 1e12)
    monkeypatch.setattr(work, "copies", lambda size: 2)
    monkeypatch.setattr(work, "torch_with_gpu", lambda: None)
    monkeypatch.setattr(work, "SMALL", FEW)
    monkeypatch.setattr(work, "LARGE", FEW)
    few = [family._replace(large=family.large and (family.small or ((33,),))) for family in FAMILIES]
    monkeypatch.setattr(work, "FAMILIES", few)
    monkeypatch.setattr(work, "QUICK", FEW)
    monkeypatch.setattr(training, "microseconds", lambda call, calls=1, wait=False: 1000.0 + (call() is None))
    monkeypatch.setattr(training, "NETWORKS", [network._replace(batch=2) for network in training.NETWORKS[1:]])
    monkeypatch.setattr(training, "SIZE", 8)
    monkeypatch.setattr(operations, "NETWORK", (8, 3, 4))
    monkeypatch.setattr(operations, "STEPS", 1)


def test_the_supervisor_knows_the_families() -> None:
    assert list(work.families()) == list(__main__.FAMILIES)
    assert set(__main__.QUICK) <= set(__main__.FAMILIES)


def test_a_quick_run_measures_fewer_cases() -> None:
    every, few = work.families(), work.families(quick=True)
    for name in __main__.QUICK:
        assert {case for case, _ in few[name]} <= {case for case, _ in every[name]}
    counts = [sum(len(found[name]) for name in __main__.QUICK) for found in (every, few)]
    assert counts[1] < 0.75 * counts[0]


def test_what_moves_memory_says_how_much() -> None:
    """Of the largest of a window an int32 is kept, whatever the type."""
    without = {family.name for family in FAMILIES if family.large and family.passes is None}
    assert without == {"conv2d", "conv2d, channels last", "linear"}
    families = {family.name: family for family in FAMILIES}
    count = 64 * 64 * 112 * 112
    for dtype, size in (("float32", 4), ("bfloat16", 2)):
        assert families["max_pool2d"].floors(dtype) == [count * size + count // 4 * (size + 4)] * 2
        assert families["avg_pool2d, channels last"].floors(dtype) == [count * size + count // 4 * size] * 2
    assert families["cast"].floors("bfloat16") == [2**26 * 6] * 2
    assert families["cast"].floors("float32") == [2**26 * 6] * 2


@compiles
@pytest.mark.usefixtures("cuda", "quick")
def test_every_case_of_float32_gives_figures(capsys: Any) -> None:
    names = ["copy", "parity float32", "speed float32", "speed TF32", "overhead", "compile"]
    assert worker.run(names, set()) == 0
    text = capsys.readouterr().out
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines[::2] == [{"family": line["family"], "case": line["case"], "begun": True} for line in lines[1::2]]
    lines = lines[1::2]
    count = len(cases.cases(FEW, ("float32",)))
    assert count == 9
    judged = [line for line in lines if "passed" in line]
    assert [line["case"] for line in judged if not line["passed"]] == []
    assert len(judged) == count + sum(bool(family.small) for family in FAMILIES) + len(operations.OPTIMIZERS) + 1
    fast = [line for line in lines if line["family"] == "speed float32"]
    assert len(fast) == count + sum(bool(family.large) for family in FAMILIES)
    assert fast[0]["floors"] == [2 * 5 * 7 * 4, 3 * 5 * 7 * 4]
    table = report.report(lines)
    assert f"parity: {len(judged)} of {len(judged)} cases right" in table
    assert "copy: 1000 GB/s" in table

    assert worker.run(names, {(line["family"], line["case"]) for line in lines}) == 0  # nothing is run again
    assert capsys.readouterr().out == ""


@compiles
@pytest.mark.parametrize("kind", training.TYPES)
@pytest.mark.usefixtures("cuda", "quick")
def test_training_steps_run_in_every_type_and_way(kind: str, monkeypatch: Any) -> None:
    """On the double a graph is replayed; the types of products and the order of images are what the name says."""
    seen: list[tuple[Any, ...]] = []
    original = training.stepping

    def watched(net: Any, optimizer: Any, functions: Any, images: Any, labels: Any, inside: Any) -> Any:
        step = original(net, optimizer, functions, images, labels, inside)
        seen.append(
            (images.array.flags.c_contiguous, mn.backends.cudnn.allow_tf32, inside is not contextlib.nullcontext)
        )
        return step

    monkeypatch.setattr(training, "stepping", watched)
    network = training.NETWORKS[1]
    assert network.name == "U-Net"
    line = {"family": "training", "case": network.title(kind), **work.train(network, kind)}
    assert line["minorm eager"] == 1.0
    assert line["minorm graph"] == 1.001  # a replay gives nothing
    assert seen == [(kind == "float32", kind == "TF32", kind == "bfloat16")]
    assert mn.backends.cudnn.allow_tf32 is False
    other = {"family": "compile", "case": line["case"], "torch compile": 3.5}
    assert report.report([line, other]).splitlines()[1].split() == [
        *f"U-Net, batch 2, {kind}".split(),
        "1.00",
        "1.00",
        "3.50",
    ]


@pytest.mark.slow  # PyTorch takes some seconds to begin
def test_steps_of_pytorch_are_those_of_minorm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same loss and gradients in both libraries, from the same weights; on the CPU, where both can run."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(training, "SIZE", 8)
    network = training.Network("ResNet-20", training.NETWORKS[0].build, 4)
    losses = []
    nets = [network.build(library) for library in (mn, torch)]
    nets[1].load_state_dict({name: torch.from_numpy(t.numpy()) for name, t in nets[0].state_dict().items()})
    arrays = training.batch(network)
    for library, net, functions in zip((mn, torch), nets, (mn.functional, torch.nn.functional), strict=True):
        images, labels = (library.tensor(a) for a in arrays)
        optimizer = library.optim.SGD(net.parameters(), 0.01, momentum=0.9)
        step = training.stepping(net, optimizer, functions, training.ordered(images, "TF32"), labels)
        losses.append([float(step()) for _ in range(2)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


@compiles
@pytest.mark.usefixtures("cuda", "quick")
def test_a_wrong_result_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    right = agreement.results

    def wrong(case: Case, given: Any, device: str) -> dict[str, Any]:
        return {**right(case, given, device), "dx": np.full_like(given["x"], np.nan)}

    monkeypatch.setattr(agreement, "results", wrong)
    line = {"family": "parity", "case": "rms 4x8", **work.normalization_parity(Case("rms", (4, 8), "float32"))}
    assert line["passed"] is False
    assert "0 of 1 cases right" in report.report([line])
    assert "WRONG rms 4x8: the error of dx is inf" in report.report([line])


@compiles
@pytest.mark.usefixtures("cuda", "quick")
def test_an_exception_ends_a_worker_with_its_words(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def fail() -> dict[str, Any]:
        raise RuntimeError("an illegal address")

    monkeypatch.setattr(worker, "families", lambda quick: {"copy": [("first", fail), ("second", lambda: {"a": 1})]})
    assert worker.run(["copy"], set()) == 1
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["case"], last["error"]) == ("first", "RuntimeError: an illegal address")
    assert "in fail" in last["where"]
    assert worker.run(["copy"], {("copy", "first")}) == 0


@compiles
@pytest.mark.usefixtures("cuda", "quick")
def test_warming_runs_each_case_once(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    ran: list[int] = []
    jobs = {"copy": [(str(i), lambda i=i: ran.append(i)) for i in range(5)]}
    monkeypatch.setattr(worker, "families", lambda quick: jobs)
    monkeypatch.setattr(device_timing, "WARMING", False)
    for part in range(2):
        assert worker.warm(["copy"], part, 2) == 0
    assert ran == [0, 2, 4, 1, 3]
    assert device_timing.microseconds(lambda: ran.append(9)) == 0.0
    assert device_timing.copies(1) == 1
    assert ran[5:] == [9]
    assert capsys.readouterr().out == ""


# The supervisor

PRETENDER = """
import json, os, pathlib, signal, sys, time
if sys.argv[-3] == "--warm":
    sys.exit(0)
sys.path.append(os.getcwd())
from benchmarks.gpu.results import read
family, results = sys.argv[1], pathlib.Path(sys.argv[3])
done = {line["case"] for line in read(results) if line["family"] == family}
cases = {"copy": ["a", "killed", "b", "raises", "c", "hangs", "d"], "training": ["t"], "overhead": []}[family]
for case in cases:
    if case in done:
        continue
    print(json.dumps({"family": family, "case": case, "begun": True}), flush=True)
    if case == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if case == "raises":
        print(json.dumps({"family": family, "case": case, "error": "ValueError: no"}), flush=True)
        sys.exit(1)
    if case == "hangs":
        time.sleep(60)
    print(json.dumps({"family": family, "case": case, "minorm": 1.0}), flush=True)
if family == "overhead":
    sys.exit("no module named so")
"""


@pytest.fixture
def pretender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """A worker that fails in every way."""
    monkeypatch.setattr(__main__, "unusable", lambda environment: None)
    file = tmp_path / "pretender.py"
    file.write_text(PRETENDER)
    return sys.executable, str(file)


def test_a_lost_case_costs_itself_alone(tmp_path: Path, pretender: tuple[str, ...], capsys: Any) -> None:
    results = tmp_path / "gpu.jsonl"
    options = ["--results", str(results), "--limit", "1", "--jobs", "1", "--families", "copy", "training", "overhead"]
    assert __main__.main(options, pretender) == 1
    lines = __main__.read(results)
    assert [line["case"] for line in lines if "minorm" in line] == ["a", "b", "c", "d", "t"]
    errors = {line["case"]: line["error"] for line in lines if "error" in line}
    assert errors == {
        "killed": "killed by signal 9: it says nothing",
        "raises": "ValueError: no",
        "hangs": "no answer within 1 s",
        "before the first case": "ended with code 1: no module named so",
    }
    assert "4 cases lost" in capsys.readouterr().out
    before = results.read_bytes()
    assert __main__.main([*options[:-1], "training"], pretender) == 1  # nothing runs again; losses are told again
    assert results.read_bytes() == before


def test_the_deadline_ends_it_and_the_next_run_goes_on(tmp_path: Path, pretender: tuple[str, ...]) -> None:
    results = tmp_path / "gpu.jsonl"
    results.write_text('{"family": "copy", "case": "killed", "minorm": 1}\n{"family": "copy", "case": "raises", "mi')
    options = ["--results", str(results), "--jobs", "1", "--families", "training"]
    assert __main__.main([*options, "--deadline", "0"], pretender) == 3
    assert [line["case"] for line in __main__.read(results)] == ["killed"]
    assert __main__.main([*options, "--limit", "5"], pretender) == 0
    assert [line["case"] for line in __main__.read(results)] == ["killed", "t"]  # behind the half of a line


def test_without_a_gpu_it_says_so(tmp_path: Path, capsys: Any) -> None:
    if mn.cuda.is_available():
        pytest.skip("there is one")
    assert __main__.main(["--results", str(tmp_path / "gpu.jsonl")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("benchmarks.gpu: there is no GPU that can be used here: ")
    assert "Error" not in said
    assert said.count("\n") == 1


@compiles
def test_what_a_first_run_is_told(cuda: Any, capsys: Any) -> None:
    shim.State.ran.clear()
    exec(__main__.ABOUT, {})
    told = capsys.readouterr().out
    assert told.startswith(f"minorm {mn.__version__} on NVIDIA Double; convolutions by ")
    assert list(shim.State.ran) == ["map_one<op::relu, float, float, 4, int>"]  # so a compiler is there
    assert cuda.transfers.launches["gemm"] == 1


@pytest.mark.parametrize("case", cases.cases(FEW, ("float64",)), ids=str)
def test_the_formulas_are_pytorchs(case: Case) -> None:
    torch = pytest.importorskip("torch")
    given = cases.arrays(case, offset=2.0)
    exact = cases.expected(case, given)
    t = {name: torch.from_numpy(value.copy()) for name, value in given.items()}
    for name in ("x", "scale", "bias"):
        t[name].requires_grad_(True)
    y = cases.peer(case, t)()
    y.backward(t["dy"])
    found = {"y": y.detach(), "dx": t["x"].grad, "dscale": t["scale"].grad, "dbias": t["bias"].grad}
    for name, value in exact.items():
        np.testing.assert_allclose(found[name].numpy(), value, rtol=1e-10, atol=1e-12)
