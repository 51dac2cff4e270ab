"""Lab 10: reads versions, attributes and modes from a model's nodes. No function calls another function here.

The functions import the onnx package only when they are called, so that the other labs do not need this package.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np


def since(model: Any, node: Any) -> int:
    """Return the node's newest version that is not newer than the model's opset for the node's domain."""
    published = {"BatchNormalization": (1, 6, 7, 9, 14, 15), "GroupNormalization": (18, 21)}[node.op_type]
    own = ("", "ai.onnx")
    for opset in model.opset_import:
        if opset.domain == node.domain or (opset.domain in own and node.domain in own):
            return max(version for version in published if version <= opset.version)
    raise ValueError(f"the model has no opset for the domain {node.domain!r}")


def attributes(node: Any, version: int, epsilon: float = 1e-5, momentum: float = 0.9) -> dict[str, Any]:
    """Return the attributes in the file, and this version's defaults for attributes that are missing there."""
    value_of = importlib.import_module("onnx.helper").get_attribute_value
    batch = node.op_type == "BatchNormalization"
    rules = (
        ("epsilon", float(np.float32(epsilon)), True),
        ("momentum", float(np.float32(momentum)), batch),
        ("is_test", 0, batch and version <= 6),
        ("spatial", 1, batch and version <= 7),
        ("training_mode", 0, batch and version >= 14),
        ("stash_type", 1, not batch and version >= 21),
        ("consumed_inputs", None, batch and version == 1),
        ("num_groups", None, not batch),
    )
    whole: dict[str, Any] = {name: default for name, default, there in rules if there}
    for attribute in node.attribute:
        if attribute.name not in whole:
            raise ValueError(f"{node.op_type} {version} has no {attribute.name}")
        whole[attribute.name] = value_of(attribute)
    if None in whole.values():
        raise ValueError(f"an attribute of {node.op_type} {version} is missing")
    return whole


def mode(node: Any, version: int) -> str:
    """Return the node's mode: "training" or "inference"."""
    helper = importlib.import_module("onnx.helper")
    said = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    known = {"epsilon", "momentum"} | ({"spatial"} if version <= 7 else set())
    known |= {"is_test"} if version <= 6 else {"training_mode"} if version >= 14 else set()
    known |= {"consumed_inputs"} if version == 1 else set()
    if not said.keys() <= known:
        raise ValueError(f"BatchNormalization {version} has no {', '.join(sorted(said.keys() - known))}")
    if version <= 6:
        trains = not said.get("is_test", 0)
    elif version <= 9:
        trains = len(node.output) > 1
    else:
        trains = bool(said.get("training_mode", 0))
        if len(node.output) != (3 if trains else 1):
            raise ValueError(f"the node has {len(node.output)} outputs, which do not fit training_mode {int(trains)}")
    return "training" if trains else "inference"
