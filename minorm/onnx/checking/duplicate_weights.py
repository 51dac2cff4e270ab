"""Find one weight that a file holds as two tensors, and several weights that a file holds as one tensor.

If a head shares its weights with a word embedding, constant folding writes the head's transposed weights as a second
tensor. Then the two tensors no longer train together. PyTorch's newer exporter writes equal weights of several modules
as one tensor, under a new name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minorm.onnx.graph import paths
from minorm.onnx.loading.judging.naming import Origin


def twice(arrays: Mapping[str, Any], origin: Origin) -> dict[str, str]:
    """Find Parameters that have a name from the exporter and equal a weight that has a name from the user.

    Return a dict that maps the name of each such Parameter to the name of the weight. The two arrays are equal
    directly, or after one array is transposed.
    """
    named: dict[Any, list[str]] = {}
    for name, array in arrays.items():
        if array.ndim == 2 and array.size and origin.names(name):
            named.setdefault(_ends(array), []).append(name)
    found = {}
    for name, array in arrays.items():
        if array.ndim == 2 and array.size and not origin.names(name) and not (array == array.flat[0]).all():
            for other in named.get(_ends(array), ()):
                if np.array_equal(array.T, arrays[other]) or np.array_equal(array, arrays[other]):
                    found[name] = other
    return found


def _ends(array: Any) -> Any:
    """Return a key that a matrix and its transpose have in common."""
    return tuple(sorted(array.shape)), array.dtype, array[0, 0].item(), array[-1, -1].item()


def merged(proto: Any, arrays: Mapping[str, Any], origin: Origin) -> list[str]:
    """Return the Parameters whose names come from the exporter and that nodes of several modules read."""
    modules: dict[str, set[str]] = {}
    for node in proto.graph.node:
        for name in node.input:
            if name in arrays and not origin.names(name):
                modules.setdefault(name, set()).add(paths.uncalled(paths.of(node)))
    return [name for name, found in modules.items() if len(found - {""}) > 1]
