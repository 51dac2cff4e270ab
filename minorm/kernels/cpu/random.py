"""Uniform random numbers and dropout. One parallel pass computes them from the blocks of a counter-based generator."""

from __future__ import annotations

from typing import Any

import minorm_ext
from minorm.devices import dtypes
from minorm.kernels.cpu import memory
from minorm.kernels.cpu.operands import STORAGE, plain
from minorm.kernels.reference.random import Blocks, threshold

_kernels: Any = minorm_ext.kernels("random")


def uniform(shape: tuple[int, ...], dtype: Any, blocks: Blocks) -> Any:
    out = memory.empty(shape, dtype)
    _kernels.uniform(out, out.size, STORAGE[dtype], *blocks, minorm_ext.get_num_threads())
    return out


def dropout(x: Any, p: float, blocks: Blocks) -> tuple[Any, Any]:
    x, out, kept = plain(x), memory.empty(x.shape, x.dtype), memory.empty(x.shape, dtypes.bool)
    threads = minorm_ext.get_num_threads()
    _kernels.dropout(x, kept, out, x.size, STORAGE[x.dtype], *threshold(p), *blocks, threads)
    return out, kept


def keep(x: Any, kept: Any, p: float) -> Any:
    x, kept, out = plain(x), plain(kept), memory.empty(x.shape, x.dtype)
    _kernels.keep_some(x, kept, out, x.size, STORAGE[x.dtype], threshold(p)[1], minorm_ext.get_num_threads())
    return out
