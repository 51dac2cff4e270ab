"""Optional, OptionalHasElement and OptionalGetElement: an absent value is None, and other values stay unchanged.

From 18 on, OptionalHasElement and OptionalGetElement also take a plain value, and OptionalHasElement needs no input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import EVERY, reads
from minorm.tensor.tensor import Tensor


@reads("Optional", since=15)
def read_optional(node: Node) -> Callable[..., Any]:
    return lambda value=None: value


@reads("OptionalHasElement", since=15, fixed=EVERY)
def read_has_element(node: Node) -> Callable[..., Tensor]:
    return lambda value=None: Tensor(np.array(value is not None))


@reads("OptionalGetElement", since=15)
def read_get_element(node: Node) -> Callable[[Any], Any]:
    def get(value: Any) -> Any:
        if value is None:
            raise ValueError("the optional value is absent; expected a value; OptionalHasElement tells if there is one")
        return value

    return get
