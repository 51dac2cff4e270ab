"""The CPU backend on the kernels of one instruction set, for tests that compare instruction sets in one process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import minorm_ext
from minorm.kernels.cpu import (
    chain,
    conv,
    conv_plan,
    conv_products,
    elementwise,
    integers,
    matmul,
    norm,
    pool,
    recurrent,
    softmax,
    sums,
    update,
)

# Convolution and matmul write multiply-adds as such, and these levels round them once: they agree with each other.
FUSED = tuple(level for level in minorm_ext.levels() if level != "baseline")

# Where a module keeps its kernels, and the caches of what belongs to one copy of them.
KEPT: dict[str, tuple[Any, str]] = {
    "conv": (conv_plan, "kernels"),
    "elementwise": (chain, "_kernels"),
    "integers": (integers, "kernels"),
    "matmul": (matmul, "_kernels"),
    "products": (matmul, "_tiled"),
    "norm": (norm, "_kernels"),
    "pool": (pool, "_kernel"),
    "recurrent": (recurrent, "_kernels"),
    "softmax": (softmax, "_kernels"),
    "sums": (sums, "_kernels"),
    "update": (update, "_kernels"),
}
CACHES = (pool._windows, pool._lengths, conv_plan.forward, conv_plan.grad_input, conv_plan.grad_weight,
          conv_products.forward, conv_products.grad_input, conv_products.grad_weight, integers.planned)  # fmt: skip


@contextlib.contextmanager
def at_level(level: str) -> Iterator[None]:
    """All families of kernels, on one instruction set."""
    before = [(module, name, getattr(module, name)) for module, name in KEPT.values()]
    before += [(elementwise, "_run", elementwise._run), (conv_products, "kernels", conv_products.kernels)]
    before += [(conv, "_maps", conv._maps)]
    for cache in CACHES:
        cache.cache_clear()
    try:
        for family, (module, name) in KEPT.items():
            setattr(module, name, minorm_ext.kernels(family, level))
        elementwise._run = minorm_ext.kernels("elementwise", level).run
        conv_products.kernels = minorm_ext.kernels("products", level)
        conv._maps = minorm_ext.kernels("elementwise", level)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
        for cache in CACHES:
            cache.cache_clear()
