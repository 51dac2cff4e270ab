"""Check the kind of each input of a node: floats, integers, bools, or a sequence of Tensors.

ONNX lists the allowed types of each version of an operator. minorm accepts a kind for an input if any version of the
operator allows this kind. For example, Relu accepts integers at every opset, although ONNX allows integers only from
version 14 on. Floats as axes are an error, because no version allows them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from minorm.devices import dtypes
from minorm.onnx.graph.storage import narrow
from minorm.onnx.graph.tensors import DTYPES
from minorm.onnx.graph.versions import PUBLISHED

CARRIERS = ("QuantizeLinear", "DynamicQuantizeLinear")
_WORDS = {"f": "floats", "i": "integers", "b": "bools", "s": "a sequence"}


def kind_of(value: Any) -> str:
    """Return the kind of a value: f (float), i (integer), b (bool) or s (sequence)."""
    if isinstance(value, list):
        return "s"
    if value.dtype in narrow.BITS:
        return "i" if value.dtype in narrow.INTEGERS else "f"
    kind = value.dtype.kind
    return "i" if kind == "u" else kind if kind in "ib" else "f" if dtypes.is_float(value.dtype) else kind


@dataclass
class Place:
    """An input: its name, its possible kinds, and ONNX's letter for its type ("" if versions differ)."""

    name: str
    kinds: frozenset[str]
    letter: str


@functools.cache
def places(operator: str) -> tuple[Place, ...]:
    """Return the inputs of an operator; the last one stands for all further inputs."""
    found: list[Place] = []
    for since in PUBLISHED[operator]:
        for i, formal in enumerate(onnx.defs.get_schema(operator, since, "").inputs):
            new = Place(formal.name, frozenset(filter(None, map(_kind_of_type, formal.types))), formal.type_str)
            if i == len(found):
                found.append(new)
            else:
                letter = new.letter if new.letter == found[i].letter else ""
                found[i] = Place(new.name, new.kinds | found[i].kinds, letter)
    return tuple(found)


def _kind_of_type(name: str) -> str:
    name = name.removeprefix("optional(")
    if name.startswith("seq("):
        return "s"
    inner = name.removeprefix("tensor(").rstrip(")")
    if inner == "bool":
        return "b"
    if inner.startswith(("int", "uint")):
        return "i"
    return "f" if "float" in inner or inner == "double" else ""


def check(operator: str, arguments: Sequence[Any]) -> None:
    """Raise ValueError if the operator does not take an argument's kind, or if two kinds differ that must be equal."""
    expected = places(operator)
    seen: dict[str, tuple[int, str]] = {}
    for i, value in enumerate(arguments):
        if value is None:
            continue
        place, kind = expected[min(i, len(expected) - 1)], kind_of(value)
        if kind not in place.kinds:
            words = " or ".join(sorted(_WORDS[kind] for kind in place.kinds))
            came = _WORDS.get(kind, "of another type")
            raise ValueError(f"input {i} ({place.name}) is {came}; expected {words}")
        first, other = seen.setdefault(place.letter, (i, kind)) if place.letter else (i, kind)
        if kind != other:
            raise ValueError(
                f"input {i} ({place.name}) is {_WORDS[kind]}, input {first} is {_WORDS[other]}; expected equal types"
            )


@functools.cache
def _results(operator: str, since: int) -> tuple[tuple[frozenset[str], tuple[int, ...]], ...]:
    """Return a pair for each output: its possible kinds, and the indices of the inputs with the same type."""
    schema = onnx.defs.get_schema(operator, since, "")
    return tuple(
        (
            frozenset(filter(None, map(_kind_of_type, formal.types))),
            tuple(i for i, given in enumerate(schema.inputs) if given.type_str == formal.type_str),
        )
        for formal in schema.outputs
    )


def discrete(nodes: Iterable[Any], known: Mapping[str, Any]) -> set[str]:
    """Return the names of the values that are certainly integers or bools, so that no gradient flows through them.

    known    dtypes by name

    A sequence is not such a value, because it may hold floats.
    """
    found = {name for name, dtype in known.items() if not dtypes.is_float(dtype)}
    for node in nodes:
        if node.body is not None:
            found.update(name for name, source in sources(node) if source is None or source in found)
            continue
        if node.operator in ("Cast", "Constant", "ConstantOfShape", "If"):
            if not _is_float(node):
                found.update(node.outputs)
            continue
        if node.operator in CARRIERS:
            continue  # integers through which a gradient passes: see functional/quantization.py
        results = _results(node.operator, node.since)
        for place, name in enumerate(node.outputs):
            kinds, same = results[min(place, len(results) - 1)]
            if kinds <= {"i", "b"} or any(i < len(node.inputs) and node.inputs[i] in found for i in same):
                found.add(name)
    return found - {""}


def types(nodes: Iterable[Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Map the names of values to their dtypes, for the values whose dtype is certain.

    A dtype is certain if a node fixes the type of its result, or if the result keeps the certain type of an input.

    known    dtypes by name
    """
    found = dict(known)
    for node in nodes:
        if node.operator == "If":
            continue
        if node.body is not None:
            found.update({name: found[source] for name, source in sources(node) if source in found})
            continue
        if node.operator in ("Cast", "Constant"):
            code, value = node.attributes.get("to"), node.attributes.get("value")
            dtype = DTYPES.get(code) if isinstance(code, int) else getattr(value, "dtype", None)
            found.update({name: dtype for name in node.outputs if dtype is not None})
            continue
        results = _results(node.operator, node.since)
        for place, name in enumerate(node.outputs):
            same = results[min(place, len(results) - 1)][1]
            if same and same[0] < len(node.inputs) and node.inputs[same[0]] in found:
                found[name] = found[node.inputs[same[0]]]
    return found


def sources(node: Any) -> list[tuple[str, str | None]]:
    """Return pairs for a node that enters or ends a body: an output, and the input of the same type (or None)."""
    places = [(name, node.body.source(place, node.enters)) for place, name in enumerate(node.outputs)]
    return [(name, None if place is None else node.inputs[place]) for name, place in places]


def _is_float(node: Any) -> bool:
    """Return whether the attributes of a node allow its result to be floats."""
    code, value = node.attributes.get("to"), node.attributes.get("value")
    if node.operator == "Cast":
        if code in narrow.TYPES:
            return False  # no gradient passes
        return not isinstance(code, int) or code not in DTYPES or dtypes.is_float(DTYPES[code])
    return not hasattr(value, "dtype") or dtypes.is_float(value.dtype)
