"""Every operation and functional inside a CUDA graph: what a replay computes has the bits of an eager call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.functional.scatter import scatter_nd
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
        "scatter rows", "quantize", "scatter_reduce", "index_put",
    )
}  # fmt: skip


def step(function: Callable[..., Any], inputs: list[Any]) -> list[Any]:
    """Return a function's results, and the gradients."""
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


# Functions of floats and places, both on the GPU.
PLACES: dict[str, Callable[[Any, Any], Any]] = {
    "embedding": lambda x, at: mn.nn.functional.embedding(at, x),
    "embedding_bag": lambda x, at: mn.nn.functional.embedding_bag(at.reshape(2, 3), x),
    "the largest of embedding_bag": lambda x, at: mn.nn.functional.embedding_bag(at.reshape(2, 3), x, mode="max"),
    "one_hot": lambda x, at: mn.nn.functional.one_hot(at, 5) * x[:, :1].sum(),
    "gather": lambda x, at: x.gather(0, at[:5].unsqueeze(0)),
    "scatter": lambda x, at: x.scatter(0, at[:5].unsqueeze(0), x[1:2] * 2),
    "scatter_add": lambda x, at: x.scatter_add(0, at[:5].unsqueeze(0), x[1:2] * 2),
    "scatter_nd": lambda x, at: scatter_nd(x, at[:4].unsqueeze(1), x),
    "index_select": lambda x, at: x.index_select(0, at),
    "index_add": lambda x, at: x.index_add(0, at[:4], x),
    "index_copy": lambda x, at: x.index_copy(0, at[:4], x * 3),
    "index_fill": lambda x, at: x.index_fill(0, at[:1], 2.0),
    "x[i]": lambda x, at: x[at],
    "x[i] = y": lambda x, at: _assigned(x * 1, at),
    "nll_loss": lambda x, at: mn.nn.functional.nll_loss(x.log_softmax(1), at[:4]),
    "multi_margin_loss": lambda x, at: mn.nn.functional.multi_margin_loss(x, at[:4]),
    "gaussian_nll_loss": lambda x, at: mn.nn.functional.gaussian_nll_loss(x, x * 2, x * x),
    "attention with a mask": lambda x, at: mn.nn.functional.scaled_dot_product_attention(x, x, x, x @ x.mT > 0),
}


def _assigned(x: Any, at: Any) -> Any:
    x[at] = mn.arange(6.0, device="cuda")[:, None]
    return x


@pytest.mark.parametrize("name", PLACES)
def test_places_on_the_gpu_are_no_question_of_the_host(name: str, cuda: Any) -> None:
    numbers = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    places = np.array([3, 0, 2, 0, 1, 3])

    def made(device: str) -> Callable[[], list[Any]]:
        x = mn.tensor(numbers, device=device, requires_grad=True)
        at = mn.tensor(places, device=device)
        return lambda: step(lambda x: PLACES[name](x, at), [x])

    first, call, graph = made("cuda")(), made("cuda"), mn.cuda.CUDAGraph()
    cuda.transfers.clear()
    with mn.cuda.graph(graph):
        found = call()
    graph.replay()
    assert (cuda.transfers.to_host, cuda.transfers.to_device) == (1, 0), "the wait before a capture is all"
    for one, other in zip(found, first, strict=True):
        np.testing.assert_array_equal(one.cpu().numpy(), other.cpu().numpy())
    if name != "x[i] = y":  # which makes its values on the GPU
        for one, other in zip(found, made("cpu")(), strict=True):
            np.testing.assert_allclose(one.cpu().numpy(), other.numpy(), rtol=1e-5, atol=1e-6)
