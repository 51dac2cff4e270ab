"""Every operation and functional inside a CUDA graph: what a replay computes has the bits of an eager call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn
from tests.gpu.test_operations import OPERATIONS, layouts

CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    **{f"operation {name}": (f, [layouts.Argument(n) for n in shapes]) for name, (f, shapes) in OPERATIONS.items()},
    **layouts.CASES,
}
# Their cases bring an index or a scale from the CPU each time, or index by NumPy's array, which may have changed.
BROUGHT = {
    f"operation {name}"
    for name in (
        "in place, by position", "index by an array", "index by NumPy's array", "index by two arrays", "gather",
        "gather along the first axis", "scatter, none", "scatter, add", "scatter, mul", "scatter, min", "scatter, max",
        "scatter rows", "quantize",
    )
}  # fmt: skip


def step(function: Callable[..., Any], inputs: list[Any]) -> list[Any]:
    """What a function gives, and the gradients."""
    found = function(*inputs)
    outputs = [y for y in (found if isinstance(found, (tuple, list)) else [found]) if isinstance(y, mn.Tensor)]
    for y in outputs:
        if y.requires_grad:
            y.backward(mn.ones_like(y), retain_graph=True)
    return [*(y.detach() for y in outputs), *(x.grad for x in inputs if x.grad is not None)]


@pytest.mark.parametrize("name", sorted(CASES.keys() - BROUGHT))
def test_it_is_captured(name: str, cuda: Any) -> None:
    function, arguments = CASES[name]
    arrays = [argument.values(i, np.float32) for i, argument in enumerate(arguments)]
    kinds = [argument.kind for argument in arguments]

    def made() -> list[Any]:
        there = [mn.tensor(array, device="cuda") for array in arrays]
        return [x.requires_grad_(kind == "number") for x, kind in zip(there, kinds, strict=True)]

    expected, graph, inputs = step(function, made()), mn.cuda.CUDAGraph(), made()
    with mn.cuda.graph(graph):
        found = step(function, inputs)
    cuda.transfers.clear()
    graph.replay()
    assert (cuda.transfers.to_host, cuda.transfers.to_device) == (0, 0)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.cpu().numpy(), other.cpu().numpy())


def test_the_exceptions_are_cases() -> None:
    assert CASES.keys() >= BROUGHT
