"""Find the module that a node comes from (`layer1.0.conv1`) in the names and metadata that exporters write.

PyTorch's older exporter names nodes after the modules around them, `/layer1/layer1.0/conv1/Conv`. Each part is the last
word of a module's path, with the numbers that follow this word. So the part for a child of a Sequential repeats the
word of its parent. The newer exporter writes whole paths into the nodes' metadata. TensorFlow and minorm write whole
paths as names: `model/conv1/Conv2D` and `layer1.0.conv1/Conv`.
"""

from __future__ import annotations

import re
from typing import Any

SCOPES = "pkg.torch.onnx.name_scopes"  # a Python list as text: ['', 'layer1', 'layer1.0', 'conv2d_3']
LONGEST = 4096  # characters of a path at most

_QUOTED = re.compile(r"'([^'\\]*)'|\"([^\"\\]*)\"")
_CALLED = re.compile(r"_\d+(?=\.|$)")
_CALL = re.compile(r"(Stateful)?PartitionedCall(_\d+)?")  # TensorFlow puts such a call around a whole model


def of(node: Any) -> str:
    """Return the path of the module that a NodeProto comes from.

    Return "" if this is the outermost module, or if the file does not record the module.
    """
    scopes = _scopes(node)
    return of_name(node.name) if scopes is None else "".join(scopes[-2:-1])


def call(node: Any) -> str:
    """Return the name of the call that made a NodeProto (`conv2d_3`); "" if the file does not record the call."""
    return "".join((_scopes(node) or [])[-1:])


def _scopes(node: Any) -> list[str] | None:
    """Return the paths of the modules around a node, then the innermost call; None if the node has no such record."""
    for entry in node.metadata_props:
        if entry.key == SCOPES and isinstance(entry.value, str) and len(entry.value) <= LONGEST:
            return ["".join(found) for found in _QUOTED.findall(entry.value)]
    return None


def of_name(name: Any) -> str:
    """Return the path in a node's name, without the last part, which names the operator."""
    if not isinstance(name, str) or "/" not in name or len(name) > LONGEST:
        return ""
    path = before = ""
    for part in name.split("/")[:-1]:
        if not part or _CALL.fullmatch(part):
            continue
        repeats = before and part.startswith(f"{before}.")
        path = path + part[len(before) :] if repeats else f"{path}.{part}" if path else part
        before = part
    return path


def uncalled(path: str) -> str:
    """Return the path without the number of the call: `body.0_1` is the second call of `body.0`."""
    return _CALLED.sub("", path)


def prefix(name: str) -> str:
    """Return the part of a tensor's name before the last dot.

    In a name that a person gave, this part is the path of a module.
    """
    return name.rpartition(".")[0]
