"""Check a node against its operator's schema: the number of inputs and outputs, the inputs that are left out, and the
names of attributes. `load` checks the nodes that it has parsed; `convert` checks the NodeProtos of the file.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from onnx.defs import OpSchema

OPTIONAL = OpSchema.FormalParameterOption.Optional


def misfit(schema: Any, inputs: Sequence[str], outputs: Sequence[str], attributes: Collection[str]) -> str:
    """Return why a node does not fit this version, in words such as "lacks input 1, B"; "" if the node fits."""
    for kind, names, formal, least, most in (
        ("input", inputs, schema.inputs, schema.min_input, schema.max_input),
        ("output", outputs, schema.outputs, schema.min_output, schema.max_output),
    ):
        if not least <= len(names) <= most:
            return f"has {len(names)} {kind}s; expected {least} to {most}"
        for place, name in enumerate(names):
            parameter = formal[min(place, len(formal) - 1)]
            if not name and kind == "input" and parameter.option != OPTIONAL:
                return f"lacks input {place}, {parameter.name}"
    for name, attribute in schema.attributes.items():
        if attribute.required and name not in attributes:
            return f"lacks the attribute {name!r}"
    for name in attributes:
        if name not in schema.attributes:
            known = ", ".join(sorted(schema.attributes)) or "none"
            return f"has an attribute {name!r}, which this version lacks; it has: {known}"
    return ""
