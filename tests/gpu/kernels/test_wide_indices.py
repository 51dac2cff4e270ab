"""Arrays of 2^31 elements take kernels whose indices are of type long long: here they do so for small ones."""

from __future__ import annotations

from typing import Any

import every_kernel
import numpy as np
import pytest
import shim

import minorm as mn
import minorm.functional as F
from minorm.devices import dtypes
from minorm.kernels import reference

pytestmark = pytest.mark.skipif(not shim.available, reason="no g++")


def test_the_border_is_below_what_an_int_can_hold() -> None:
    from minorm.kernels.gpu import launch

    assert launch.index_type(2**31 - 2**24 - 1) == dtypes.int32
    assert launch.index_type(2**31 - 2**24) == dtypes.int64


def test_long_long_in_every_family(cuda: Any, monkeypatch: Any) -> None:
    from minorm.kernels.gpu import conv, elementwise, launch, pool, random, softmax
    from minorm.kernels.gpu.plans import softmax_plan, sums_plan

    monkeypatch.setattr(launch, "index_type", lambda size: dtypes.int64)
    plans = sums_plan.plan, softmax_plan.rows, softmax_plan.pieces
    for plan in plans:
        plan.cache_clear()
    x = np.random.default_rng(0).standard_normal((2, 3, 6, 6)).astype(np.float32)
    w = np.random.default_rng(1).standard_normal((4, 3, 3, 3)).astype(np.float32)
    there, windows, how = cuda.array(x), ((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1)), ((1, 1), ((1, 1),) * 2, (1, 1), 1)
    blocks, labels = (7, 0, 1, 2), np.arange(6)
    logits, there_labels = cuda.array(x[0, 0]), cuda.array(labels)
    expected, expected_lse = reference.softmax.cross_entropy(x[0, 0], labels)
    try:
        loss, lse = elementwise.cross_entropy(logits, there_labels)
        y, places = pool.max_forward(there, *windows, False)
        pairs = [
            (elementwise.relu(there), reference.elementwise.relu(x)),
            (elementwise.relu_grad(there, there), reference.elementwise.relu_grad(x, x)),
            (elementwise.softmax(there), reference.softmax.softmax(x)),
            (elementwise.softmax(there, 1), reference.softmax.softmax(x, 1)),
            (loss, expected), (lse, expected_lse),
            (elementwise.cross_entropy_grad(loss, logits, there_labels, lse),
             reference.softmax.cross_entropy_grad(expected, x[0, 0], labels, expected_lse)),
            (elementwise.sum_axes(there, (0, 2, 3)), x.sum((0, 2, 3))),
            (random.dropout(there, 0.3, blocks)[0], reference.random.dropout(x, 0.3, blocks)[0]),
            (random.uniform((9,), dtypes.float32, blocks), reference.random.uniform((9,), dtypes.float32, blocks)),
            (y, reference.pool.max_forward(x, *windows, False)[0]),
            (pool.max_backward(y, places, x.shape, windows), np.where(x == np.kron(y.memory, np.ones((2, 2))), x, 0)),
            (conv.forward(there, cuda.array(w), None, *how), reference.conv.forward(x, w, None, *how)),
            (conv.grad_input(there[:, :, :4], cuda.array(w[:3]), (2, 3, 4, 6), *how),
             reference.conv.grad_input(x[:, :, :4], w[:3], (2, 3, 4, 6), *how)),
        ]  # fmt: skip
        for actual, expected in pairs:
            np.testing.assert_allclose(actual.memory, expected, rtol=1e-5, atol=1e-5)
    finally:
        for plan in plans:
            plan.cache_clear()
    used = [key for family in (elementwise, pool, conv.columns, random, softmax) for key in family._program._kernels]
    assert {key[0] for key in used if dtypes.int64 in key} >= {
        "map_one", "map_two", "forward", "im2col", "col2im", "dropout", "uniform", "rows", "columns", "cross_entropy",
        "cross_entropy_grad",
    }  # fmt: skip


@pytest.mark.parametrize("packs", [8, 0], ids=["in registers", "by chunks"])
def test_long_long_in_normalizations(packs: int, cuda: Any, monkeypatch: Any) -> None:
    from minorm.kernels.gpu import norm

    if packs == 0:
        every_kernel.by_chunks(norm, monkeypatch)
    monkeypatch.setattr(norm.norm_forward.norm_plan, "index_type", lambda size: dtypes.int64)
    every_kernel.forget(norm)
    shim.State.ran.clear()
    rng = np.random.default_rng(0)
    found: dict[str, list[np.ndarray]] = {"cpu": [], "cuda": []}
    for shape in ((5, 36), (41, 8), (3, 8, 5, 7)):
        x, s, b = (rng.standard_normal(size).astype(np.float32) for size in (shape, shape[1], shape[1]))
        for device, results in found.items():
            t = [mn.tensor(a, device=device, requires_grad=True) for a in (x, s, b)]
            y = (
                F.layer_norm(t[0], shape[1:], *t[1:])
                if shape == (5, 36)
                else F.batch_norm(t[0], None, None, *t[1:], True)
            )
            y.backward(y.detach() + 1)
            results += [a.detach().cpu().numpy() for a in (y, *(a.grad for a in t))]
    every_kernel.forget(norm)
    for actual, expected in zip(found["cuda"], found["cpu"], strict=True):
        np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-4)
    ran = [name for name in shim.State.ran if not name.startswith(("map_", "fill", "move"))]  # what makes gradients
    assert ran
    assert all("long long" in name for name in ran)
