"""Loads a package's names at their first use, so that unused names cost no import time.

LATER = {"padding": "pad", "attention": "scaled_dot_product_attention"}       module: the names it defines
__getattr__, __dir__ = lazy.names(__name__, LATER)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from minorm.support import elsewhere

Functions = tuple[Callable[[str], Any], Callable[[], list[str]]]


def names(package: str, later: Mapping[str, str]) -> Functions:
    """Return `__getattr__` and `__dir__` (PEP 562) for a package whose names come from its modules.

    Each module in `later` is an attribute too. But `dir` lists a module only if `later` gives no names for this module.
    """
    homes = {name: f"{package}.{module}" for module, words in later.items() for name in words.split()}
    return _functions(package, homes, {module for module, words in later.items() if not words})


def from_module(package: str, module: str, words: str) -> Functions:
    """Return `__getattr__` and `__dir__` for a module that imports all its late names from one other module."""
    return _functions(package, dict.fromkeys(words.split(), module), set())


def _functions(package: str, homes: Mapping[str, str], modules: set[str]) -> Functions:
    def get(name: str) -> Any:
        if name in modules or f"{package}.{name}" in homes.values():
            return import_module(f"{package}.{name}")
        if name not in homes:
            words = f"module {package!r} has no attribute {name!r}{elsewhere.advice(package, name)}"
            raise AttributeError(words, name=name, obj=sys.modules[package])
        return getattr(import_module(homes[name]), name)

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes, *modules})

    return get, listed
