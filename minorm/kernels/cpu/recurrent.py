"""RNN, LSTM and GRU, computed by the kernels; kernels/reference/recurrent.py explains the arguments.

All arrays have the same type, float32 or float64; ops/recurrent.py converts 16-bit floats before it calls this module.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import minorm_ext
from minorm.kernels.cpu.memory import empty
from minorm.kernels.cpu.operands import plain
from minorm.kernels.reference.gates import DEFAULTS
from minorm.kernels.reference.recurrent import Cell, Memory

__all__ = ["Cell", "Memory", "backward", "forward"]

_kernels: Any = minorm_ext.kernels("recurrent")
_get_num_threads = minorm_ext.get_num_threads

KINDS = {"RNN": (0, "h"), "LSTM": (1, "ifog"), "GRU": (2, "zrn")}  # the kernel's number, and its order of gates
NUMBERS = {name: i for i, name in enumerate(DEFAULTS)}  # of activations.inc.h


def forward(
    cell: Cell, a: Any, r: Any, br: Any, p: Any, h: Any, c: Any, y: Any, lengths: Any, reverse: bool, keep: bool
) -> Memory | None:
    steps, batch, hidden = y.shape
    v = e = states = cells = None
    if keep:
        v, states = empty(a.shape, a.dtype), empty(y.shape, a.dtype)
        e = None if cell.kind == "RNN" else empty(y.shape, a.dtype)
        cells = None if c is None else empty(y.shape, a.dtype)
    if a.size:
        _kernels.forward(
            _described(cell), a, plain(r), _plain(br), _plain(p), h, c, y,
            y.strides[0] // y.itemsize, steps, batch, hidden, lengths, reverse, (v, e, states, cells), empty,
            _get_num_threads(),
        )  # fmt: skip
    return Memory(a, v, e, states, cells) if keep else None


def backward(
    cell: Cell, memory: Memory, r: Any, p: Any, dy: Any, dh: Any, dc: Any, lengths: Any, reverse: bool
) -> tuple[Any, Any]:
    a = memory.a
    da = empty(a.shape, a.dtype)
    dq = empty(a.shape, a.dtype) if cell.kind == "GRU" and cell.variant else da
    (steps, batch, _), hidden = a.shape, r.shape[1]
    if dy is not None and not (dy.flags.aligned and dy.strides[1:] == (hidden * dy.itemsize, dy.itemsize)):
        dy = plain(dy)
    if a.size:
        _kernels.backward(
            _described(cell), tuple(memory), plain(r), _plain(p), dy,
            0 if dy is None else dy.strides[0] // dy.itemsize, dh, dc, steps, batch, hidden, lengths, reverse, da, dq,
            empty, _get_num_threads(),
        )  # fmt: skip
    return da, dq


def _plain(array: Any) -> Any:
    return None if array is None else plain(array)


@functools.lru_cache(maxsize=64)
def _described(cell: Cell) -> tuple[Any, ...]:
    """Return the cell in the kernel's form."""
    kind, order = KINDS[cell.kind]
    activations = tuple([(NUMBERS[gate.name], gate.alpha, gate.beta) for gate in cell.activations])
    bound = math.inf if cell.clip is None else cell.clip
    return kind, tuple([cell.gates.index(gate) for gate in order]), cell.variant, activations, bound
