"""clipping.cu and clipping.py: norms and clipping of lists of gradients, against the CPU, and what a step launches."""

from __future__ import annotations

import itertools
import math
from typing import Any

import instances
import numpy as np
import pytest
import shim

import minorm as mn
from minorm import nn
from minorm.devices import dtypes
from minorm.kernels.gpu.plans import clip_plan

pytestmark = pytest.mark.skipif(not shim.available, reason="no g++")
SHAPES = [(1,), (3, 5), (8, 4), (0,), (4096,), (9001,), (), (2, 3, 4, 4)]
KINDS = {2.0: "squares", 1.0: "absolutes", math.inf: "largest", 3.0: "powers"}


def needed() -> list[tuple[Any, ...]]:
    keys: list[tuple[Any, ...]] = []
    for dtype in instances.FLOATS:
        for width in (1, 16 // dtype.itemsize):
            rest = (dtype, dtypes.compute_type(dtype), width)
            keys += [(name, *rest, kind) for name in ("add_powers", "clip_norm") for kind in KINDS.values()]
            keys.append(("clip_value", *rest))
    return keys


@pytest.fixture
def gpu(cuda: Any) -> Any:
    from minorm.kernels.gpu import clipping

    instances.compiled(clipping._program, needed())
    return clipping


def parameters(dtype: Any, device: str = "cpu", shapes: Any = SHAPES, factor: float = 1.0) -> list[mn.Tensor]:
    rng = np.random.default_rng(0)
    found = []
    for shape in shapes:
        p = mn.Tensor(np.zeros(shape, dtype)).to(device).requires_grad_()
        p.grad = mn.Tensor(np.asarray(rng.standard_normal(shape) * factor).astype(dtype)).to(device)
        found.append(p)
    return found


def gradients(found: list[mn.Tensor]) -> list[np.ndarray]:
    return [p.grad.cpu().numpy() for p in found]


@pytest.mark.parametrize("dtype", instances.FLOATS, ids=str)
@pytest.mark.parametrize("p", KINDS)
def test_norms_are_the_cpus(p: float, dtype: Any, gpu: Any, cuda: Any) -> None:
    for most in (0.5, 1e6, 0.0):
        here, there = parameters(dtype), parameters(dtype, "cuda")
        cuda.transfers.clear()
        before = shim.State.launches
        found = nn.utils.clip_grad_norm_(there, most, p)
        assert shim.State.launches - before == 2  # the norm of all, and all that is clipped
        assert (cuda.transfers.to_host, cuda.transfers.to_device, dict(cuda.transfers.launches)) == (0, 0, {})
        wanted = nn.utils.clip_grad_norm_(here, most, p)
        assert (found.shape, found.dtype, found.device) == ((), dtype, "cuda:0")
        instances.close(found.array, wanted.numpy(), 1 if dtype != dtypes.float64 else 4)
        for ours, right in zip(gradients(there), gradients(here), strict=True):
            instances.close(ours, right, 1 if dtype != dtypes.float64 else 4)  # the sum has another order
        assert all(tensor.grad.version.count == 1 for tensor in there) or most == 1e6


def test_what_is_not_above_the_limit_keeps_its_bits(gpu: Any, cuda: Any) -> None:
    there = parameters(dtypes.bfloat16, "cuda")
    before = gradients(there)
    nn.utils.clip_grad_norm_(there, 1e6)
    for ours, right in zip(gradients(there), before, strict=True):
        np.testing.assert_array_equal(ours, right)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("p", KINDS)
def test_what_is_not_finite(p: float, bad: float, gpu: Any, cuda: Any) -> None:
    results = []
    for device in ("cpu", "cuda"):
        found = parameters(dtypes.float32, device)
        found[4].grad[77] = bad
        before = gradients(found)
        with pytest.raises(RuntimeError, match=f"the norm of the gradients is {abs(bad)}"):
            nn.utils.clip_grad_norm_(found, 1.0, p, error_if_nonfinite=True)
        for ours, right in zip(gradients(found), before, strict=True):
            np.testing.assert_array_equal(ours, right)  # nothing has changed
        norm = nn.utils.clip_grad_norm_(found, 1.0, p)
        results.append([norm.cpu().numpy(), *gradients(found)])
    for ours, right in zip(*reversed(results), strict=True):
        np.testing.assert_array_equal(ours, right)


def test_a_finite_norm_may_be_asked_for(gpu: Any, cuda: Any) -> None:
    there, again = parameters(dtypes.float32, "cuda"), parameters(dtypes.float32, "cuda")
    norms = [
        nn.utils.clip_grad_norm_(of, 1.0, error_if_nonfinite=ask).item() for of, ask in ((there, True), (again, False))
    ]
    assert norms[0] == norms[1]
    for ours, right in zip(gradients(there), gradients(again), strict=True):
        np.testing.assert_array_equal(ours, right)


def test_squares_beyond_float32(gpu: Any, cuda: Any) -> None:
    there = parameters(dtypes.float32, "cuda", [(1000,)], 1e30)
    here = parameters(dtypes.float32, "cpu", [(1000,)], 1e30)
    norms = [nn.utils.clip_grad_norm_(found, 1.0) for found in (there, here)]
    instances.close(norms[0].array, norms[1].numpy(), 1)
    assert np.linalg.norm(gradients(there)[0].astype(np.float64)) == pytest.approx(1, rel=1e-5)


def test_lists_of_several_types_places_and_layouts(gpu: Any, cuda: Any) -> None:
    def mixed(device: str, other: str) -> list[mn.Tensor]:
        found = [p for dtype in (dtypes.float32, dtypes.float16) for p in parameters(dtype, device)]
        found += parameters(dtypes.float32, other)
        with_gaps = parameters(dtypes.float32, device, [(4, 6), (5, 8), (3, 4)])
        with_gaps[0].grad = with_gaps[0].grad[:, ::2]
        with_gaps[1].grad = with_gaps[1].grad.T
        with_gaps[2].grad = mn.Tensor(with_gaps[2].grad.array.reshape(-1)[1:])  # not aligned
        return found + with_gaps

    for p in KINDS:
        for other in ("cuda:1", "cpu"):
            here, there = mixed("cpu", "cpu"), mixed("cuda:0", other)
            found, wanted = (nn.utils.clip_grad_norm_(each, 2.0, p) for each in (there, here))
            instances.close(found.array, wanted.numpy(), 1)
            for ours, right in zip(gradients(there), gradients(here), strict=True):
                instances.close(ours, right, 1)
            nn.utils.clip_grad_value_(there, 0.01)
            nn.utils.clip_grad_value_(here, 0.01)
            for ours, right in zip(gradients(there), gradients(here), strict=True):
                instances.close(ours, right, 1)


@pytest.mark.parametrize("dtype", instances.FLOATS, ids=str)
def test_values(dtype: Any, gpu: Any, cuda: Any) -> None:
    for most in (0.1, 0.0, 1e30, math.inf):
        here, there = parameters(dtype), parameters(dtype, "cuda")
        for found in (here, there):
            found[4].grad[3:6] = mn.tensor([math.nan, math.inf, -math.inf], dtype=dtype).to(found[4].device)
        cuda.transfers.clear()
        before = shim.State.launches
        nn.utils.clip_grad_value_(there, most)
        assert shim.State.launches - before == 1
        assert not cuda.transfers.launches
        with np.errstate(over="ignore"):
            nn.utils.clip_grad_value_(here, most)
        for ours, right in zip(gradients(there), gradients(here), strict=True):
            np.testing.assert_array_equal(ours.astype(np.float64), right.astype(np.float64))


def test_more_arrays_than_a_launch_takes(gpu: Any, cuda: Any) -> None:
    shapes = [(1 + i % 7,) for i in range(clip_plan.MOST + 3)]
    here, there = parameters(dtypes.float32, "cpu", shapes), parameters(dtypes.float32, "cuda", shapes)
    before = shim.State.launches
    found, wanted = (nn.utils.clip_grad_norm_(each, 1.0) for each in (there, here))
    assert shim.State.launches - before == 4
    instances.close(found.array, wanted.numpy(), 1)
    for ours, right in zip(gradients(there), gradients(here), strict=True):
        instances.close(ours, right, 1)


def test_no_elements(gpu: Any, cuda: Any) -> None:
    there = parameters(dtypes.float32, "cuda", [(0,), (2, 0)])
    assert nn.utils.clip_grad_norm_(there, 1.0).item() == 0
    nn.utils.clip_grad_value_(there, 1.0)
    first_is_empty = [*parameters(dtypes.float16, "cuda", [(0,)]), *parameters(dtypes.float32, "cuda", [(3,)])]
    assert nn.utils.clip_grad_norm_(first_is_empty, 0.1).item() > 0.1


def test_the_order_of_threads_changes_no_bit(gpu: Any, cuda: Any) -> None:
    results = []
    for shim.State.seed in range(3):
        there = parameters(dtypes.float32, "cuda")
        norms = [nn.utils.clip_grad_norm_(there, 0.5, p).cpu().numpy().tobytes() for p in KINDS]
        results.append([norms, *[g.tobytes() for g in gradients(there)]])
    shim.State.seed = 0
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(
    ("line", "broken"),
    [
        ("        __syncthreads();\n        if (threadIdx.x < half)", "        if (threadIdx.x < half)"),
        ("at < whole; at += step) {\n        const Pack", "at + V < whole; at += step) {\n        const Pack"),
        ("chunk < list.first[MOST]", "chunk < list.first[1]"),
    ],
)
def test_a_broken_kernel_is_found(line: str, broken: str, gpu: Any, cuda: Any, monkeypatch: Any) -> None:
    from minorm.kernels.gpu import program, source

    right = source.source("clipping.cu")
    assert right.count(line) == 1
    monkeypatch.setattr(program, "source", lambda _: right.replace(line, broken))
    monkeypatch.setattr(gpu, "_program", program.Program("clipping.cu"))
    with pytest.raises(AssertionError):
        for shim.State.seed, p in itertools.product(range(4), (2.0, math.inf)):
            here, there = parameters(dtypes.float32), parameters(dtypes.float32, "cuda")
            found, wanted = (nn.utils.clip_grad_norm_(each, 0.5, p) for each in (there, here))
            instances.close(found.array, wanted.numpy(), 4)
            for ours, good in zip(gradients(there), gradients(here), strict=True):
                instances.close(ours, good, 4)
    shim.State.seed = 0


def test_chunks_are_few_and_follow_from_the_sizes() -> None:
    for sizes in ([10], [1] * 300, [25_000_000, 3], [1 << 32]):
        length = clip_plan.length(sizes)
        assert sum(-(-size // length) for size in sizes) <= clip_plan.PARTS + len(sizes)
        assert length == clip_plan.SHORTEST or sum(sizes) > clip_plan.PARTS * length / 2
    assert clip_plan.STRUCT.itemsize + 48 <= 4096  # what every device takes as arguments
