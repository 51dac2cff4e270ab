"""update.cu and update.py: SGD and Adam for lists of parameters, every type, sizes around accesses and chunks."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import instances
import numpy as np
import nvrtc
import pytest
import shim

import minorm as mn
from minorm.devices import dtypes
from minorm.kernels import reference
from minorm.kernels.gpu.plans import update_plan
from minorm.kernels.gpu.source import OPTIONS, options, source

pytestmark = pytest.mark.skipif(not shim.available, reason="no g++")
SIZES = [(1,), (3, 5), (8, 4), (0,), (4099,), (2, 2, 3, 3)]
SGD = [
    {"lr": 0.1},
    {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.01},
    {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True},
]
ADAM_NUMBERS = {"lr": 0.01, "beta1": 0.9, "beta2": 0.999, "eps": 1e-3}
ADAM: list[dict[str, Any]] = [{}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "decoupled": True, "maximize": True}]


def needed() -> list[tuple[Any, ...]]:
    keys: list[tuple[Any, ...]] = []
    for dtype in instances.FLOATS:
        for width in (16 // dtype.itemsize, 1) if dtype == dtypes.float32 else (16 // dtype.itemsize,):
            rest = (dtype, dtypes.compute_type(dtype), width)
            keys += [("sgd", *rest, *options) for options in ((False, False), (True, False), (True, True))]
            keys += [("adam", *rest, False), ("adam", *rest, True), ("scale", *rest)]
    return keys


@pytest.fixture
def gpu(cuda: Any) -> Any:
    from minorm.kernels.gpu import update

    instances.compiled(update._program, needed())
    return update


def lists(dtype: Any, count: int, shapes: Any = SIZES) -> list[list[np.ndarray]]:
    """`count` lists of random arrays; from the third one on, of numbers that are not negative."""
    rng = np.random.default_rng(0)
    signed = [[rng.standard_normal(shape).astype(dtype) for shape in shapes] for _ in range(count)]
    return signed[:2] + [[np.abs(a) for a in values] for values in signed[2:]]


def moved(cuda: Any, values: list[list[np.ndarray]]) -> list[list[Any]]:
    return [[cuda.array(a) for a in part] for part in values]


def same(actual: list[list[Any]], expected: list[list[np.ndarray]], dtype: Any) -> None:
    units, small = (1, 0.0) if dtype in dtypes.HALVES else (8, 1e-6 if dtype == dtypes.float32 else 1e-15)
    for left, right in zip(itertools.chain(*actual), itertools.chain(*expected), strict=True):
        instances.close(left, right, units, small)


@pytest.mark.parametrize("kept", [False, True], ids=["eager", "captured"])
@pytest.mark.parametrize("dtype", instances.FLOATS, ids=str)
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_the_bits_are_those_of_the_formula(name: str, dtype: Any, kept: bool, gpu: Any, cuda: Any) -> None:
    """Each product is rounded before it is added, in both forms of a kernel: else their last bits could differ."""
    for chosen in SGD if name == "sgd" else [{**ADAM_NUMBERS, **more} for more in ADAM]:
        values = lists(dtype, (3 if "momentum" in chosen else 2) if name == "sgd" else 5)
        there = moved(cuda, values)
        more: Any = () if name == "sgd" else ([1 + i for i in range(len(SIZES))],)
        full = lambda v: [*v, []] if len(v) == 2 else v  # noqa: E731
        step = functools.partial(getattr(gpu, name), *full(there), *more, **chosen)
        if kept:
            captured(step)
        else:
            step()
        getattr(reference.update, name)(*full(values), *more, **chosen)
        for left, right in zip(itertools.chain(*there), itertools.chain(*values), strict=True):
            np.testing.assert_array_equal(left.memory, right)


def captured(step: Callable[[], None]) -> None:
    """The step as the replay of a CUDA graph."""
    graph = mn.cuda.CUDAGraph()
    with mn.cuda.graph(graph):
        step()
    graph.replay()


@pytest.mark.skipif(not nvrtc.available, reason="no NVRTC, or no headers for it")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("adam", "float, float, 4, true"),
        ("adam", "__half, float, 8, false"),
        ("sgd", "float, float, 1, true, true"),
        ("sgd", "double, double, 2, true, false"),
    ],
)
def test_nvrtc_leaves_nothing_to_the_assembler(name: str, arguments: str) -> None:
    """`.rn` in PTX says that an operation is rounded by itself; without it the assembler may fuse two as it likes."""
    code = source("update.cu")
    eager, kept = (
        nvrtc.arithmetic(code, f"{form}<{arguments}>", options("update.cu")) for form in (name, f"{name}_kept")
    )
    assert eager == kept != []
    assert not [word for word in eager if word.startswith("fma") or ".rn" not in word]
    free = nvrtc.arithmetic(code, f"{name}<{arguments}>", OPTIONS)
    assert any(word.startswith("fma") for word in free)
    assert any(".rn" not in word for word in free)


@pytest.mark.parametrize("dtype", instances.FLOATS, ids=str)
@pytest.mark.parametrize("options", SGD)
def test_sgd(options: dict[str, Any], dtype: Any, gpu: Any, cuda: Any) -> None:
    values = lists(dtype, 3 if "momentum" in options else 2)
    there = moved(cuda, values)
    full = lambda v: v if len(v) == 3 else [*v, []]  # noqa: E731
    launches = shim.State.launches
    for _ in range(2):
        gpu.sgd(*full(there), **options)
        reference.update.sgd(*full(values), **options)
    assert shim.State.launches - launches == 2
    same(there, values, dtype)
    assert cuda.transfers.to_host == 0


@pytest.mark.parametrize("dtype", instances.FLOATS, ids=str)
@pytest.mark.parametrize("peaks", [False, True])
@pytest.mark.parametrize("options", ADAM)
def test_adam(options: dict[str, Any], peaks: bool, dtype: Any, gpu: Any, cuda: Any) -> None:
    values = lists(dtype, 5 if peaks else 4)
    there = moved(cuda, values)
    full = lambda v: v if len(v) == 5 else [*v, []]  # noqa: E731
    numbers = {**ADAM_NUMBERS, **options}
    for step in (1, 2):
        steps = [step + i for i in range(len(SIZES))]
        gpu.adam(*full(there), steps, **numbers)
        reference.update.adam(*full(values), steps, **numbers)
    same(there, values, dtype)
    assert cuda.transfers.to_host == 0


def test_more_parameters_than_one_launch_takes(gpu: Any, cuda: Any) -> None:
    values = lists(np.float32, 2, [(i % 7 + 1,) for i in range(2 * update_plan.MOST + 1)])
    there, launches = moved(cuda, values), shim.State.launches
    gpu.sgd(*there, [], lr=0.5)
    assert shim.State.launches - launches == 3
    reference.update.sgd(*values, [], lr=0.5)
    same(there, values, dtypes.float32)


def test_other_layouts_types_and_addresses(gpu: Any, cuda: Any) -> None:
    """A permuted gradient is laid as its parameter; one with gaps is the reference's; each type has its launch."""
    rng = np.random.default_rng(0)
    x = [rng.standard_normal((4, 6)).astype(np.float32) for _ in range(4)]
    p = [cuda.array(x[0]), cuda.array(x[1])[:, ::2], cuda.array(x[2]).astype(np.float64), cuda.array(x[3])[1:, 1:]]
    g = [cuda.array(x[1].T.copy()).T, cuda.array(x[0][:, ::2]), p[2].copy(), cuda.array(x[0])[1:, 1:]]
    expected = [a.memory - 0.5 * b.memory for a, b in zip(p, g, strict=True)]
    gpu.sgd(p, g, [], lr=0.5)
    for left, right in zip(p, expected, strict=True):
        np.testing.assert_allclose(left.memory, right, rtol=1e-6)
    gpu.scale(p, 2.0)
    for left, right in zip(p, expected, strict=True):
        np.testing.assert_allclose(left.memory, 2 * right, rtol=1e-6)


def test_an_address_that_is_not_aligned(gpu: Any, cuda: Any) -> None:
    p, g = cuda.array(np.ones(10, np.float32)), cuda.array(np.arange(9, dtype=np.float32))
    gpu.sgd([p[1:]], [g], [], lr=1.0)
    assert p.memory.tolist() == [1, *(1 - np.arange(9.0))]


def test_every_block_finds_its_part() -> None:
    sizes = [1, 4096, 4097, 10_000, 5]
    ((struct, grid),) = update_plan.launches(sizes, p=range(5))
    assert grid == (1 + 1 + 2 + 3 + 1,)
    assert struct["first"][:7].tolist() == [0, 1, 2, 4, 7, 8, 8]
    assert struct["p"][:5].tolist() == [0, 1, 2, 3, 4]
    assert update_plan.STRUCT.itemsize <= 4096 - 64


def test_the_numbers_of_both_languages() -> None:
    assert f"MOST = {update_plan.MOST}, CHUNK = {update_plan.CHUNK};" in instances.source("update.cu")


@pytest.mark.parametrize(
    ("right", "wrong"), [("min((long long)CHUNK, parts.size[low] - begin)", "CHUNK"), ("<= blockIdx.x", "< blockIdx.x")]
)
def test_a_broken_kernel_is_found(right: str, wrong: str, gpu: Any, cuda: Any, monkeypatch: Any) -> None:
    text = instances.source("update.cu")
    assert right in text
    key = ("scale", dtypes.float32, dtypes.float32, 4)
    name = instances.expression(*key)
    module = shim.Module(
        code=text.replace(right, wrong), options=("-std=c++17", "-default-device"), name_expressions=[name]
    )
    monkeypatch.setitem(gpu._program._kernels, key, module.get_function(name))
    whole = cuda.array(np.ones(12_000, np.float32))
    x, y = whole[:4100], whole[4100:4132]
    gpu.scale([x, y], 2.0)
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(whole.memory, np.where(np.arange(12_000) < 4132, 2, 1))
