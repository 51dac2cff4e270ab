"""Names that a package shows but loads when they are asked for, so that what nobody calls costs no import time.

LATER = {"padding": "pad", "attention": "scaled_dot_product_attention"}       module: the names it defines
__getattr__, __dir__ = lazy.names(__name__, LATER)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def names(package: str, later: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The module functions `__getattr__` and `__dir__` of a package (PEP 562) for names that come from its modules."""
    homes = {name: f"{package}.{module}" for module, words in later.items() for name in words.split()}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
        return getattr(import_module(homes[name]), name)

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return get, listed
