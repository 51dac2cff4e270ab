"""The kernels of recurrent layers against the NumPy walk, step by step, and on any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minorm_ext
from minorm.kernels.cpu import recurrent as cpu
from minorm.kernels.reference import recurrent as reference
from minorm.kernels.reference.gates import DEFAULTS, Gate
from minorm.kernels.reference.recurrent import Cell

KINDS = {"RNN": ("h", 1), "GRU": ("rzn", 2), "LSTM": ("ifgo", 3)}
USUAL = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}


def case(kind: str, steps: int, batch: int, hidden: int, dtype: Any, seed: int) -> dict[str, Any]:
    """Arguments of a walk, of moderate numbers."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> Any:
        return (rng.standard_normal(shape) * 0.6).astype(dtype)

    gates = len(KINDS[kind][0])
    return {
        "a": normal(steps, batch, gates * hidden),
        "r": normal(gates * hidden, hidden) / np.asarray(np.sqrt(hidden), dtype),
        "br": normal(gates * hidden) if kind == "GRU" else None,
        "p": normal(3 * hidden) if kind == "LSTM" and seed % 2 else None,
        "h": normal(batch, hidden),
        "c": normal(batch, hidden) if kind == "LSTM" else None,
        "dy": normal(steps, batch, hidden),
        "dh": normal(batch, hidden),
        "dc": normal(batch, hidden) if kind == "LSTM" else None,
    }


def walked(module: Any, cell: Cell, given: dict[str, Any], lengths: Any, reverse: bool) -> dict[str, Any]:
    """All results of a walk there and back."""
    a, h, c, dh, dc = (None if given[n] is None else given[n].copy() for n in ("a", "h", "c", "dh", "dc"))
    r, p = given["r"], given["p"]
    y = np.full((len(a), 2, *h.shape), np.nan, a.dtype)  # beside the other direction
    memory = module.forward(cell, a, r, given["br"], p, h, c, y[:, 1], lengths, reverse, True)
    da, dq = module.backward(cell, memory, r, p, given["dy"], dh, dc, lengths, reverse)
    assert np.isnan(y[:, 0]).all()
    found = {"y": y[:, 1], "h": h, "c": c, "da": da, "dq": dq, "dh": dh, "dc": dc, "before": memory.h}
    return {name: array.copy() for name, array in found.items() if array is not None}


SIZES = st.tuples(st.integers(1, 6), st.integers(1, 30), st.integers(1, 40))


@pytest.mark.parametrize("kind", KINDS)
@given(
    sizes=SIZES,
    seed=st.integers(0, 99),
    dtype=st.sampled_from([np.float32, np.float64]),
    clip=st.sampled_from([None, 0.7]),
    flags=st.tuples(*[st.booleans()] * 3),
)
@settings(deadline=None)
def test_the_kernels_are_the_reference(
    kind: str, sizes: Any, seed: int, dtype: Any, clip: float | None, flags: Any
) -> None:
    variant, reverse, some = flags
    cell = Cell(kind, KINDS[kind][0], tuple(map(Gate, USUAL[kind])), clip, variant)
    arguments = case(kind, *sizes, dtype, seed)
    lengths = np.arange(sizes[1]) * 5 % (sizes[0] + 1) if some else None
    found, wanted = (walked(module, cell, arguments, lengths, reverse) for module in (cpu, reference))
    tolerance = 3e-5 if dtype is np.float32 else 1e-13
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("name", DEFAULTS)
def test_every_activation(name: str) -> None:
    gate = Gate(name, *[0.4, 0.3][: len(DEFAULTS[name])])
    for kind, (order, count) in KINDS.items():
        cell = Cell(kind, order, (gate,) * count, None, True)
        arguments = case(kind, 3, 5, 11, np.float64, 3)
        found, wanted = (walked(module, cell, arguments, None, False) for module in (cpu, reference))
        for key, array in wanted.items():
            np.testing.assert_allclose(found[key], array, rtol=1e-12, atol=1e-12, err_msg=key)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [1, 2, 7, 53])
def test_the_bits_do_not_depend_on_threads(kind: str, batch: int) -> None:
    cell = Cell(kind, KINDS[kind][0], tuple(map(Gate, USUAL[kind])), None, False)
    arguments = case(kind, 40, batch, 45, np.float32, 1)
    before, results = minorm_ext.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            minorm_ext.set_num_threads(threads)
            found = walked(cpu, cell, arguments, None, True)
            results.append({name: array.tobytes() for name, array in found.items()})
    finally:
        minorm_ext.set_num_threads(before)
    assert results[1:] == results[:1] * 2


def test_a_sequence_has_the_bits_that_it_has_alone() -> None:
    """Beside others or not, short or long: with 40 steps and more, rows of products do not depend on each other."""
    cell = Cell("LSTM", "ifgo", tuple(map(Gate, USUAL["LSTM"])), None, False)
    arguments = case("LSTM", 40, 9, 33, np.float32, 0)
    lengths = np.array([40, 3, 0, 17, 40, 1, 40, 8, 20])
    together = walked(cpu, cell, arguments, lengths, False)["y"]
    for row in range(9):
        alone = {name: x[:, row : row + 1] if x is not None and x.ndim == 3 else x for name, x in arguments.items()}
        alone |= {name: arguments[name][row : row + 1] for name in ("h", "c", "dh", "dc")}
        y = walked(cpu, cell, alone, lengths[row : row + 1], False)["y"]
        np.testing.assert_array_equal(y[:, 0], together[:, row])


def test_what_lies_behind_a_sequence_does_not_matter() -> None:
    """NaN in steps that a sequence does not have reaches nothing."""
    for kind in KINDS:
        cell = Cell(kind, KINDS[kind][0], tuple(map(Gate, USUAL[kind])), None, False)
        arguments = case(kind, 5, 4, 6, np.float64, 1)
        lengths = np.array([5, 2, 0, 4])
        spoiled = dict(arguments)
        for name in ("a", "dy"):
            spoiled[name] = np.where((np.arange(5)[:, None] < lengths)[..., None], arguments[name], np.nan)
        clean, found = (walked(cpu, cell, one, lengths, True) for one in (arguments, spoiled))
        for name, array in clean.items():
            np.testing.assert_array_equal(found[name], array, err_msg=name)
