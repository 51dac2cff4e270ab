"""The CUDA kernels of normalization, run on the CPU: all types, both ways, any order of threads, and what breaks them.

That every function computes what the other backends compute is tested with them, in tests/kernels/test_norm.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import bridge
import every_kernel
import numpy as np
import pytest
import shim

import minorm as mn
from minorm import nn
from minorm.devices import dtypes
from minorm.kernels import reference
from minorm.kernels.gpu.source import source
from minorm.kernels.protocol import Statistics
from minorm.normalization.equation import Equation
from minorm.normalization.nest import Nest, plan

pytestmark = pytest.mark.skipif(not shim.available, reason="no g++")

FORMS = {  # shape, axes, groups, axes of the parameters, memory order
    "batch": ((6, 5, 8, 9), (0, 2, 3), 1, (1,), (0, 1, 2, 3)),
    "batch, long rows": ((40, 3, 32), (0, 2), 1, (1,), (0, 1, 2)),
    "batch, channels last": ((6, 40, 7, 3), (0, 2, 3), 1, (1,), (0, 2, 3, 1)),
    "batch of vectors": ((70, 12), (0,), 1, (1,), (0, 1)),
    "instance": ((3, 4, 5, 7), (2, 3), 1, (1,), (0, 1, 2, 3)),
    "groups": ((3, 12, 4, 4), (2, 3), 3, (1, 2), (0, 1, 2, 3)),
    "groups, one scale each": ((3, 12, 4, 4), (2, 3), 3, (1,), (0, 1, 2, 3)),
    "instances, channels last": ((9, 8, 5, 7), (2, 3), 1, (1,), (0, 2, 3, 1)),
    "many groups, channels last": ((17, 16, 9, 9), (2, 3), 4, (1, 2), (0, 2, 3, 1)),
    "groups, channels last": ((3, 12, 4, 4), (2, 3), 3, (1, 2), (0, 2, 3, 1)),
    "odd groups, channels last": ((2, 12, 4, 5), (2, 3), 4, (1, 2), (0, 2, 3, 1)),
    "odd images": ((18, 4, 3, 3), (0, 2, 3), 1, (1,), (0, 1, 2, 3)),
    "even instances": ((5, 4, 4, 8), (2, 3), 1, (1,), (0, 1, 2, 3)),
    "odd instances": ((5, 9, 7, 7), (2, 3), 1, (1,), (0, 1, 2, 3)),
    "odd groups": ((3, 12, 5, 5), (2, 3), 4, (1, 2), (0, 1, 2, 3)),
    "long odd groups": ((2, 6, 9, 13), (2, 3), 2, (1, 2), (0, 1, 2, 3)),
    "layer": ((13, 96), (1,), 1, (1,), (0, 1)),
    "layer, odd": ((5, 97), (1,), 1, (1,), (0, 1)),
    "layer, many rows": ((130, 12), (1,), 1, (1,), (0, 1)),
    "layer, a block a row": ((2, 2600), (1,), 1, (1,), (0, 1)),
    "layer, a long odd row": ((2, 2603), (1,), 1, (1,), (0, 1)),
    "layer, rows in turn": ((19, 1300), (1,), 1, (1,), (0, 1)),
    "no parameters": ((4, 200), (1,), 1, (), (0, 1)),
    "one element": ((1, 1), (1,), 1, (1,), (0, 1)),
}
TYPES = {  # stored, computed, parameters
    "float32": (dtypes.float32, None, dtypes.float32),
    "float64": (dtypes.float64, None, dtypes.float64),
    "float16": (dtypes.float16, None, dtypes.float16),
    "bfloat16": (dtypes.bfloat16, None, dtypes.bfloat16),
    "float16, parameters in float32": (dtypes.float16, None, dtypes.float32),
    "bfloat16 in float64": (dtypes.bfloat16, dtypes.float64, dtypes.float32),
    "float32 in float64": (dtypes.float32, dtypes.float64, dtypes.float32),
}
ERROR = {dtypes.float32: 3e-6, dtypes.float64: 1e-13, dtypes.float16: 1.2e-3, dtypes.bfloat16: 9e-3}


@pytest.fixture
def norm() -> Iterator[bridge.Norm]:
    with bridge.gpu_norm() as norm:
        yield norm
        shim.State.seed = 0


@pytest.fixture(params=["in registers", "by chunks", "in clusters"])
def way(request: pytest.FixtureRequest, norm: bridge.Norm, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Keep rows in registers, if they fit; or cut all rows into as many chunks as possible; or give each a cluster."""
    if request.param == "by chunks":
        every_kernel.by_chunks(norm.norm, monkeypatch)
    if request.param == "in clusters":
        every_kernel.in_clusters(norm.norm, monkeypatch)
    yield request.param
    every_kernel.forget(norm.norm)


class Problem:
    """Arrays and the expected results, from the reference in float64."""

    def __init__(self, form: str, stored: Any, of_parameters: Any, offset: float = 3.0, seed: int = 0) -> None:
        shape, axes, groups, param, order = FORMS[form]
        rng = np.random.default_rng(seed)
        memory = rng.standard_normal((2, *[shape[i] for i in order]))
        self.x = (memory[0].transpose(np.argsort(order)) + offset).astype(stored)
        self.dy = memory[1].transpose(np.argsort(order)).astype(stored)
        strides = tuple(step // self.x.itemsize for step in self.x.strides)
        self.nest: Nest = plan(shape, axes, groups, param, strides)
        self.s = self.b = None
        if param:
            self.s, self.b = rng.standard_normal((2, self.nest.param_size)).astype(of_parameters)

    def wide(self) -> list[Any]:
        return [None if a is None else a.astype(np.float64) for a in (self.x, self.dy, self.s, self.b)]

    def expected(self, equation: Equation) -> tuple[Any, ...]:
        x, dy, s, b = self.wide()
        y, stats = reference.norm.forward(self.nest, x, s, b, equation)
        return y, stats.block, *reference.norm.backward(self.nest, dy, x, stats, s, equation)

    def found(self, norm: bridge.Norm, equation: Equation, dtype: Any = None) -> tuple[Any, ...]:
        y, stats = norm.forward(self.nest, self.x, self.s, self.b, equation, dtype)
        return y, stats.block, *norm.backward(self.nest, self.dy, self.x, stats, self.s, equation, (True, True), dtype)


def relative(found: Any, expected: Any) -> float:
    difference = np.linalg.norm(found.astype(np.float64) - expected)
    return float(difference / max(1e-3, np.linalg.norm(expected)))


FEW = ("batch", "batch, channels last", "groups", "layer", "odd groups", "odd images", "many groups, channels last")
CASES = [(form, types) for types in TYPES for form in (FORMS if types == "float32" else FEW)]


@pytest.mark.parametrize(("form", "types"), CASES)
def test_all_types_and_forms(form: str, types: str, way: str, norm: bridge.Norm) -> None:
    stored, computed, of_parameters = TYPES[types]
    equation = Equation(1e-3, way == "in registers" or form != "layer", form == "no parameters")
    problem = Problem(form, stored, of_parameters)
    y, stats, dx, ds, db = problem.found(norm, equation, computed)
    wide_y, wide_stats, wide_dx, wide_ds, wide_db = problem.expected(equation)
    compute = computed or dtypes.compute_type(stored)
    assert (y.dtype, dx.dtype, stats.dtype, ds.dtype, db.dtype) == (stored, stored, np.float64, compute, compute)
    assert y.strides == problem.x.strides
    assert relative(y, wide_y) < ERROR[stored]
    assert relative(dx, wide_dx) < 2 * ERROR[stored]
    exact = ERROR[np.dtype(compute)]
    assert relative(stats[0] + stats[1], wide_stats[0] + wide_stats[1]) < exact
    assert relative(stats[2:], wide_stats[2:]) < exact
    assert relative(ds, wide_ds) < 2 * exact
    assert relative(db, wide_db) < 2 * exact


@pytest.mark.parametrize("form", FORMS)
def test_chunks_that_take_a_thread_several_steps(form: str, norm: bridge.Norm, monkeypatch: pytest.MonkeyPatch) -> None:
    every_kernel.by_chunks(norm.norm, monkeypatch)
    monkeypatch.setattr(norm.norm.norm_forward.norm_plan, "BUSY", 1)
    problem = Problem(form, dtypes.float32, dtypes.float32)
    for found, expected in zip(problem.found(norm, Equation()), problem.expected(Equation()), strict=True):
        assert relative(found, expected) < 1e-6
    every_kernel.forget(norm.norm)


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e6, 1e7])
@pytest.mark.parametrize("form", ["batch", "batch, channels last", "instance", "groups", "layer", "batch of vectors"])
def test_float32_keeps_its_digits_far_from_zero(form: str, offset: float, way: str, norm: bridge.Norm) -> None:
    problem = Problem(form, dtypes.float32, dtypes.float32, offset)
    found, expected = problem.found(norm, Equation()), problem.expected(Equation())
    assert abs(found[0] - expected[0]).max() < 5e-6
    for gradient, exact in zip(found[2:], expected[2:], strict=True):
        assert relative(gradient, exact) < 1e-6


@pytest.mark.parametrize("outlier", [1e3, 1e6])
@pytest.mark.parametrize("form", ["batch", "batch, channels last", "layer, a block a row", "batch of vectors"])
def test_variance_beside_an_outlier_that_comes_first(form: str, outlier: float, way: str, norm: bridge.Norm) -> None:
    problem = Problem(form, dtypes.float32, dtypes.float32)
    problem.x.reshape(-1)[0] = outlier
    problem.x[(0,) * problem.x.ndim] = outlier
    var = norm.moments(problem.nest, problem.x, True)[2]
    np.testing.assert_allclose(var, problem.expected(Equation())[1][2], rtol=1e-6)


@pytest.mark.parametrize("form", ["batch", "batch, channels last", "layer", "groups", "batch of vectors"])
@pytest.mark.parametrize("value", [0.0, 0.1, 12345.678, 1e30])
def test_of_equal_elements_y_is_the_bias(form: str, value: float, way: str, norm: bridge.Norm) -> None:
    problem = Problem(form, dtypes.float32, dtypes.float32)
    problem.x[...] = value
    y, _ = norm.forward(problem.nest, problem.x, None, problem.b, Equation())
    expected, _ = reference.norm.forward(problem.nest, problem.x * 0, None, problem.b, Equation())
    np.testing.assert_array_equal(y, expected)


ALONE = {  # one element a statistic
    "batch": ((1, 37), (0,), 1, (1,), (0, 1)),
    "batch, channels last": ((1, 40, 1, 1), (0, 2, 3), 1, (1,), (0, 2, 3, 1)),
    "instance": ((3, 40, 1, 1), (2, 3), 1, (1,), (0, 1, 2, 3)),
    "groups": ((3, 12, 1), (2,), 12, (1,), (0, 1, 2)),
    "layer": ((300, 1), (1,), 1, (1,), (0, 1)),
    "layer, one scale a row": ((7, 5, 1), (2,), 1, (0, 1), (0, 1, 2)),
}


@pytest.mark.parametrize(("form", "types"), [*((form, "float32") for form in ALONE), ("layer", "bfloat16")])
def test_one_number_is_its_own_mean(
    form: str, types: str, way: str, norm: bridge.Norm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dx is 0 to the last bit: the product with the scale is the very number that went into its mean."""
    monkeypatch.setitem(FORMS, form, ALONE[form])
    stored, computed, of_parameters = TYPES[types]
    problem = Problem(form, stored, of_parameters)
    _, _, dx, _, _ = problem.found(norm, Equation(), computed)
    np.testing.assert_array_equal(dx, np.zeros_like(problem.x))


@pytest.mark.parametrize("form", ["batch", "batch, channels last", "layer"])
@pytest.mark.parametrize("size", [1e20, 1e30])
def test_squares_that_float32_does_not_hold(form: str, size: float, way: str, norm: bridge.Norm) -> None:
    problem = Problem(form, dtypes.float32, dtypes.float32, offset=0)
    problem.x *= np.float32(size)
    found, expected = problem.found(norm, Equation()), problem.expected(Equation())
    assert abs(found[0] - expected[0]).max() < 5e-6
    np.testing.assert_allclose(found[1][2], expected[1][2], rtol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_the_order_of_threads_changes_no_bit(form: str, way: str, norm: bridge.Norm) -> None:
    problem = Problem(form, dtypes.float32, dtypes.float32)
    bits = []
    for seed in range(4):
        shim.State.seed = seed
        bits.append([a.tobytes() for a in problem.found(norm, Equation())])
    assert all(one == bits[0] for one in bits)


def mutants() -> Iterator[tuple[str, str, str, int]]:
    """Yield (file, text, its replacement, which occurrence): each barrier, and indices that are off by one."""
    for file, unused in (
        ("norm_rows.cu", ()),
        ("norm_moments.cu", (0, 5, 7, 8)),  # three part blocks, which run one after the other here
        ("norm_grads.cu", (0, 5, 7, 8)),
        ("norm_apply.cu", (0, 1)),
        ("norm_short.cu", (0, 1)),
        ("norm_cluster.cu", (0,)),
        ("norm_ahead.cu", (0, 1)),
    ):
        for which in range(source(file).count("__syncthreads();")):
            if which not in unused:  # they part sums of which this file has one, or none
                yield file, "__syncthreads();", ";", which
    for file, right, wrong in (
        ("norm_rows.cu", "of_warp[n][threadIdx.x / 32] = sums[n]", "of_warp[n][threadIdx.x / 32 + 1] = sums[n]"),
        ("norm_rows.cu", "columns = loops.terms;", "columns = loops.terms - 1;"),
        ("norm_rows.cu", "I param = row.param + (SAME", "I param = row.param + 1 + (SAME"),
        ("norm_rows.cu", "rows + team.index] = total_gx", "rows + team.index + 1] = total_gx"),
        ("norm_rows.cu", "param_sums[rows + row.place.param]", "param_sums[rows + 1 + row.place.param]"),
        ("norm_rows.cu", "begin + i / V * step", "begin + i / V"),
        ("norm_short.cu", "begin = team * columns", "begin = team * (columns - 1)"),
        ("norm_short.cu", "row.param + channel * loops", "row.param + 0 * loops"),
        ("norm_short.cu", "run_sums[loops.results * at.channels + run]", "run_sums[loops.results + run]"),
        ("norm_short.cu", "i = count / V * V + threadIdx.x", "i = count / V * V + threadIdx.x + 1"),
        ("norm_moments.cu", "shared[1][team][v * LANES + lane] = squares[v]", "shared[1][team][lane] = squares[v]"),
        ("norm_moments.cu", "min(first + chunk, loops.terms)", "min(first + chunk, loops.terms - 1)"),
        ("norm_moments.cu", "m2[u] = partial[second + from]", "m2[u] = partial[second - 1 + from]"),
        ("norm_rows.cu", "outer.data - loop.count * loop.data;", "outer.data + 4 - loop.count * loop.data;"),
        ("norm_moments.cu", "shared[n][0][i + half * RESULTS]", "shared[n][0][i + half * RESULTS - 1]"),
        ("norm_apply.cu", "put_rounded(out, batches", "put_rounded(out, V + batches"),
        ("norm_apply.cu", "bottom + r, loops.part", "r, loops.part"),
        ("norm_apply.cu", "found = hold<P, V>(s, at)", "found = hold<P, V>(s, I(0))"),
        ("norm_grads.cu", "int first = at.split; first < parts", "int first = at.split + 1; first < parts"),
        ("norm_grads.cu", "partial[second + from.data", "partial[second + 1 + from.data"),
        ("norm_ahead.cu", "wait_for_copies(1)", "wait_for_copies(2)"),
        ("norm_ahead.cu", "copy(row + blocks, 1 - stage)", "copy(row, 1 - stage)"),
        ("norm_ahead.cu", "of_warps[stage][threadIdx.x / 32]", "of_warps[stage][0]"),
        ("norm_ahead.cu", "begin + i / V * step", "begin + i / V"),
        ("norm_ahead.cu", "(blocks + blockIdx.x) * columns", "(blocks + blockIdx.x) * columns + 1"),
        ("norm_cluster.cu", "cluster_arrive();\n        cluster_wait();", ""),
        ("norm_cluster.cu", "if (BLOCKS > 1) cluster_wait();", ""),
        ("norm_cluster.cu", "of_block(own[n], rank)", "of_block(own[n], (rank + 1) % BLOCKS)"),
        ("norm_cluster.cu", "const int rank = cluster_rank()", "const int rank = 0"),
        ("norm_cluster.cu", "first(rank * cut.part)", "first(rank * cut.part + V)"),
        ("norm_cluster.cu", "first_run(rank * cut.runs)", "first_run(0)"),
        ("norm_cluster.cu", "loops.terms - of_rank * cut.part", "cut.part - V * (of_rank == 0)"),
        ("norm_cluster.cu", "GROUPS - 1 - group_of(turn)", "GROUPS - group_of(turn)"),
        ("norm_cluster.cu", "slot = run * (length() / V) + lane", "slot = run * (length() / V) + lane / 2"),
        ("norm_cluster.cu", "of_warps[run * warps + warp][n]", "of_warps[run * warps][n]"),
        ("norm_cluster.cu", "part.first_run + run;", "part.first_run;"),
        ("norm_cluster.cu", "rows + row.param] = (C)total_gx", "rows + row.param + 1] = (C)total_gx"),
        ("norm_cluster.cu", "weight = widen<double>(s[place.param])", "weight = widen<double>(s[row.param])"),
    ):
        for which in range(source(file).count(right) if file == "norm_cluster.cu" else 1):
            yield file, right, wrong, which


@pytest.mark.parametrize(("file", "text", "broken", "which"), list(mutants()))
def test_a_missing_barrier_or_a_wrong_index_shows(
    file: str, text: str, broken: str, which: int, norm: bridge.Norm, monkeypatch: pytest.MonkeyPatch
) -> None:
    from minorm.kernels.gpu import program

    parts = source(file).split(text)
    assert which < len(parts) - 1
    mutated = text.join(parts[: which + 1]) + broken + text.join(parts[which + 1 :])
    monkeypatch.setattr(program, "source", lambda name: mutated if name == file else source(name))
    if file == "norm_cluster.cu":
        every_kernel.in_clusters(norm.norm, monkeypatch)
    elif file == "norm_rows.cu":  # older devices take it for more rows
        monkeypatch.setattr(norm.norm.norm_forward.norm_cluster, "available", lambda: False)
    elif file != "norm_ahead.cu":
        every_kernel.by_chunks(norm.norm, monkeypatch)
    if file in ("norm_moments.cu", "norm_grads.cu"):
        read_twice(norm, monkeypatch)
    if file == "norm_apply.cu":  # so that a block has more rows than wait in its shared memory
        monkeypatch.setattr(norm.norm.norm_forward.norm_plan, "FEW", 1)
    forward, backward = norm.norm.norm_forward, norm.norm.norm_backward
    kinds = ("rows", "moments", "apply", "grads", "cluster", "ahead", "short")
    for module in (forward, backward, forward.norm_cluster, backward.norm_merges, backward.norm_ahead):
        for name in [f"{kind}_program" for kind in kinds]:
            if hasattr(module, name):
                monkeypatch.setattr(module, name, program.Program(getattr(module, name).name))
    every_kernel.forget(norm.norm)
    try:
        assert any(is_wrong(norm, form, seed) for form in MUTANT_FORMS for seed in range(3))
    finally:
        every_kernel.forget(norm.norm)


def read_twice(norm: bridge.Norm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read lanes twice in one launch, however few they are."""
    relay_plan = norm.norm.norm_forward.relay_plan
    monkeypatch.setattr(relay_plan, "FEWEST_TILES", 1)
    monkeypatch.setattr(relay_plan, "BLOCKS", 3)
    monkeypatch.setattr(relay_plan, "PACKS", dict.fromkeys((1, 2, 3), 1))


TWICE = ["instances, channels last", "many groups, channels last", "batch, channels last"]


@pytest.mark.parametrize("types", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("form", TWICE)
def test_lanes_that_are_read_twice_in_one_launch(
    form: str, types: str, norm: bridge.Norm, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, computed, of_parameters = TYPES[types]
    problem, equation, bits = Problem(form, stored, of_parameters), Equation(1e-3, True, types == "float64"), []
    read_twice(norm, monkeypatch)
    every_kernel.forget(norm.norm)
    shim.State.ran.clear()
    for seed in range(2):
        shim.State.seed = seed
        found = problem.found(norm, equation, computed)
        bits.append([a.tobytes() for a in found])
        error = ERROR[stored]
        for one, other in zip(found, problem.expected(equation), strict=True):
            assert relative(one, other) < 2 * error
    assert bits[0] == bits[1]
    assert {name.partition("<")[0] for name in shim.State.ran} >= {"relay_forward", "relay_backward"}
    every_kernel.forget(norm.norm)


MUTANT_FORMS = (
    "layer, a block a row", "layer, a long odd row", "batch, channels last", "groups", "batch", "layer", "instance",
    "layer, many rows", "long odd groups", "odd instances", "many groups, channels last", "layer, rows in turn",
    "even instances",
)  # fmt: skip


def is_wrong(norm: bridge.Norm, form: str, seed: int) -> bool:
    shim.State.seed = seed
    problem = Problem(form, dtypes.float32, dtypes.float32)
    try:
        found = problem.found(norm, Equation())
    except shim.KernelError:
        return True
    expected = problem.expected(Equation())
    return not all(relative(one, other) < 1e-4 for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("kinds", [("float32", "float32"), ("float16", "float32"), ("float64", "float32")], ids=str)
def test_statistics_that_are_given_keep_their_digits(kinds: tuple[str, str], norm: bridge.Norm) -> None:
    mean, var = (np.array([0.1, 3.0, 1e4]).astype(kind) for kind in kinds)
    kernels = norm.norm.bind(plan((5, 3), (0,)), Equation(1e-3), dtypes.float32, None)
    block = kernels.statistics(*map(norm._over, (mean, var))).block.memory
    k = mean.astype(np.float32).astype(np.float64)
    variance = var.astype(np.float64)
    expected = [k, mean.astype(np.float64) - k, variance, 1 / np.sqrt(variance + 1e-3)]
    np.testing.assert_allclose(block, expected, rtol=1e-15)


@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize(("shape", "launches"), [((5, 6, 4, 4), 1), ((40, 6), 3)])  # 3: moments, merge, apply
def test_running_statistics_in_the_same_launch(
    shape: tuple[int, ...], launches: int, unbiased: bool, norm: bridge.Norm
) -> None:
    layer = nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm1d
    here, there = (layer(6, unbiased_running_var=unbiased) for _ in range(2))
    there.to("cuda")
    for seed in range(3):
        x = mn.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32) + 2)
        here(x)
        x = x.to("cuda")
        before = shim.State.launches
        there(x)
        assert shim.State.launches - before == launches
    found = there.state_dict()
    for name, value in here.state_dict().items():
        np.testing.assert_allclose(found[name].cpu().numpy(), value.numpy(), rtol=1e-6)


@pytest.mark.parametrize("what", ["evaluation", "no update", "an error"])
def test_running_statistics_that_must_not_change(what: str, norm: bridge.Norm) -> None:
    layer = nn.BatchNorm1d(6).to("cuda")
    x = mn.tensor(np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)).to("cuda")
    before = {name: value.cpu().numpy().copy() for name, value in layer.state_dict().items()}
    if what == "evaluation":
        layer.eval()(x)
    elif what == "no update":
        with mn.no_stats_update():
            layer(x)
    else:
        with pytest.raises(ValueError, match="channels"):
            layer(x[:, :5])
    for name, value in layer.state_dict().items():
        np.testing.assert_array_equal(value.cpu().numpy(), before[name])


def test_the_cumulative_average_needs_no_word_to_the_host(norm: bridge.Norm) -> None:
    layer = nn.BatchNorm1d(6, momentum=None).to("cuda")
    batches = [np.random.default_rng(seed).standard_normal((8, 6)).astype(np.float32) for seed in range(3)]
    norm.cupy.transfers.clear()
    for batch in batches:
        layer(mn.Tensor(norm.cupy.asarray(batch)))
    assert norm.cupy.transfers.to_host == 0
    mean = np.mean([batch.mean(0) for batch in batches], 0)
    np.testing.assert_allclose(layer.running_mean.cpu().numpy(), mean, rtol=1e-5, atol=1e-7)


def test_evaluation_backward(norm: bridge.Norm) -> None:
    """With given statistics all five inputs have gradients."""
    problem = Problem("batch", dtypes.float32, dtypes.float32)
    x, dy, s, _ = problem.wide()
    rng = np.random.default_rng(1)
    var = rng.random(problem.nest.rows) + 0.5
    stats = Statistics.of(rng.standard_normal(len(var)).astype(np.float32), np.zeros(len(var)), var, 1 / np.sqrt(var))
    arguments = problem.nest, problem.dy, problem.x, stats
    for name, given, wide in (
        ("grad_sums", (*arguments, problem.s), (problem.nest, dy, x, stats, s)),
        ("grad_params", arguments, (problem.nest, dy, x, stats)),
    ):
        expected = getattr(reference.norm, name)(*wide)
        for one, other in zip(getattr(norm, name)(*given), expected, strict=True):
            assert relative(one, other) < 1e-6
    dx = norm.grad_input(*arguments, problem.s, None, None)
    assert relative(dx, reference.norm.grad_input(problem.nest, dy, x, stats, s, None, None)) < 1e-6


def test_unaligned_memory(norm: bridge.Norm) -> None:
    """A view that begins in the middle of 16 bytes is read element by element."""
    problem = Problem("layer", dtypes.float32, dtypes.float32)
    room = norm.cupy.zeros(problem.x.size + 1, dtypes.float32)
    x = room[1:].reshape(problem.x.shape)
    x[...] = norm.cupy.asarray(problem.x)
    s, b = norm.cupy.asarray(problem.s), norm.cupy.asarray(problem.b)
    y, _ = norm.norm.forward(problem.nest, x, s, b, Equation())
    assert math.isclose(relative(y.get(), problem.expected(Equation())[0]), 0, abs_tol=1e-6)


KEEPING: dict[str, Any] = {
    "in registers": (lambda **o: nn.BatchNorm2d(6, **o), (5, 6, 4, 4)),
    "by chunks": (lambda **o: nn.BatchNorm1d(6, **o), (40, 6)),
    "in clusters": (lambda **o: nn.BatchNorm2d(6, **o), (5, 6, 4, 16)),
    "many channels": (lambda **o: nn.BatchNorm2d(70, **o), (4, 70, 3, 2)),
    "many columns": (lambda **o: nn.BatchNorm1d(300, **o), (6, 300)),
    "float16": (lambda **o: nn.BatchNorm2d(6, dtype=dtypes.float16, **o), (5, 6, 4, 4)),
    "bfloat16": (lambda **o: nn.BatchNorm2d(6, dtype=dtypes.bfloat16, **o), (5, 6, 4, 4)),
    "cumulative": (lambda **o: nn.BatchNorm2d(6, momentum=None, **o), (5, 6, 4, 4)),
    "unbiased": (lambda **o: nn.BatchNorm2d(6, unbiased_running_var=True, **o), (5, 6, 4, 4)),
    "instance": (lambda **o: nn.InstanceNorm2d(6, track_running_stats=True, **o), (5, 6, 4, 4)),
    "ghost": (lambda **o: nn.GhostBatchNorm(6, 2, **o), (4, 6, 4, 4)),
    "renorm": (lambda **o: nn.BatchRenorm2d(6, rmax=2.0, dmax=1.0, **o), (5, 6, 4, 4)),
    "masked": (lambda **o: nn.BatchNorm2d(6, **o), (5, 6, 4, 4)),
    "accumulated": (lambda **o: nn.BatchNorm2d(6, **o), (5, 6, 4, 4)),
}


@pytest.mark.parametrize("name", KEEPING)
@pytest.mark.parametrize("update_nonfinite", [False, True])
def test_batches_that_are_not_finite(
    name: str, update_nonfinite: bool, norm: bridge.Norm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on the CPU, and the host is not asked: the first and last channel in turn, finite batches between them."""
    if name == "in clusters":
        every_kernel.in_clusters(norm.norm, monkeypatch)
    make, shape = KEEPING[name]
    found = {}
    for device in ("cpu", "cuda"):
        layer = make(update_nonfinite=update_nonfinite).to(device)
        rest = (mn.tensor(np.arange(4) < 3).to(device),) if name == "masked" else ()
        given = []
        for seed, bad in enumerate((None, (0, np.inf), None, (shape[1] - 1, np.nan), None)):
            x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32) + 2
            if bad is not None:
                x.reshape(*shape[:2], -1)[1, bad[0], 0] = bad[1]
            given.append(mn.tensor(x).to(layer.running_mean.dtype).to(device))
        norm.cupy.transfers.clear()
        with nn.accumulate_stats(layer) if name == "accumulated" else nullcontext():
            for x in given:
                layer(x, *rest)
        asked = device == "cuda" and name == "masked"  # MaskedBackend: is its mean close enough?
        assert norm.cupy.transfers.to_host == 5 * asked
        found[device] = {key: value.cpu().numpy().astype(np.float64) for key, value in layer.state_dict().items()}
        found[device]["skipped"] = np.array(layer.skipped_batches)
    assert found["cpu"]["skipped"] == (0 if update_nonfinite else 2)
    assert np.isfinite(found["cpu"]["running_mean"]).all() != update_nonfinite
    half = name in ("float16", "bfloat16")
    for key, value in found["cpu"].items():
        np.testing.assert_allclose(found["cuda"][key], value, rtol=1e-2 if half else 1e-5, atol=1e-6, err_msg=key)
    if name == "in clusters":
        assert any(kernel.startswith("cluster_forward") for kernel in shim.State.ran)
        every_kernel.forget(norm.norm)


def test_a_variance_that_its_type_cannot_hold(norm: bridge.Norm) -> None:
    layer = nn.BatchNorm1d(3).to("cuda")
    for size, skipped in ((3e19, 0), (1e20, 1)):  # a tenth of the variance, 9e38 or 1e40, is to fit into float32
        layer(mn.tensor(np.float32([[0, size, 0], [0, -size, 0]])).to("cuda"))
        assert layer.skipped_batches == skipped
        np.testing.assert_allclose(layer.running_var.cpu().numpy()[1], 9e37, rtol=1e-6)
