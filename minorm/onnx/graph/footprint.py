"""Count the memory that the model in a file would take, before the file's bytes are parsed.

protobuf makes an object for every node, and minorm makes a few more. So a node of two bytes in the file takes a
thousand bytes of memory. This module therefore walks the bytes first, field by field and message by message, in
protobuf's wire format. The walk skips long contents, such as the elements of a tensor, in one step. It only remembers
where each of the messages around the current field ends.

A field begins with a tag, which holds the field's number and its kind. The tag is followed by a number, or by a length
and that many bytes.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import onnx

from minorm.onnx.graph.errors import LoadError
from minorm.serialization import limits

# A model, together with the file itself, may take at most 40 times its length plus 64 MB (docs/security.md).
FACTOR = 36
SPARE = 48 << 20
DEEPEST = 100  # messages inside each other; protobuf refuses more

# Bytes of memory for protobuf's and minorm's objects together, measured with `load` on files with nothing else.
PARTS = {
    "NodeProto": 1000, "NodeProto.input": 700, "NodeProto.output": 700, "AttributeProto": 300, "GraphProto": 500,
    "FunctionProto": 1500, "FunctionProto.input": 500, "FunctionProto.output": 500, "FunctionProto.attribute": 500,
    "GraphProto.input": 800, "GraphProto.output": 800, "TensorProto": 1000, "StringStringEntryProto": 200,
}  # fmt: skip
MESSAGE = 90  # a message of any other kind
TEXT, LETTER = 100, 4  # a text or bytes, and each byte of it
NUMBER, PACKED = 60, 20  # a number in a list, and each byte of a packed list

VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5  # the kinds of fields
GROUPS = (3, 4)  # begin and end of a group, which no ONNX file has; its contents count as if they were outside


class Field(NamedTuple):
    """The memory of a field: `once`, plus `each` per byte of its contents.

    If the contents are a message, the field takes `once` plus the memory of the message's `fields`.
    """

    once: int
    each: int
    fields: dict[int, Field] | None = None


UNKNOWN = Field(0, 2)


def check(contents: bytes, what: str, max_bytes: int = limits.ONNX) -> None:
    """Raise LoadError if a model would take far more memory than its file; the message begins with `what`.

    max_bytes    the memory that the model may take; only a number above the default has an effect
    """
    most = max(FACTOR * len(contents) + SPARE, max_bytes if max_bytes > limits.ONNX else 0)
    try:
        taken = footprint(contents, most)
    except (ValueError, IndexError):
        raise LoadError(f"{what} is no ONNX model, or a damaged one: a field ends after its message") from None
    except RecursionError:
        raise LoadError(
            f"{what} is no ONNX model, or a damaged one: its messages are nested more than {DEEPEST} deep"
        ) from None
    if taken > most:
        enough = max(limits.ONNX + 1, len(contents) * max_memory_per_byte())
        raise LoadError(
            f"{what} has {len(contents):,} bytes, and its nodes and other parts would take more than {most:,}; "
            f"{limits.raised(enough)} if you trust it"
        )


def footprint(contents: bytes, most: int) -> int:
    """Return the bytes of memory that the model takes; the count stops once it exceeds `most`."""
    total, at, end, fields = 0, 0, len(contents), messages()
    around: list[tuple[int, dict[int, Field]]] = []  # the end of each message around us, and its fields
    while total <= most:
        if at >= end:
            if at > end:
                raise ValueError(at)
            if not around:
                break
            end, fields = around.pop()
            continue
        tag = contents[at]
        at += 1
        if tag > 127:
            tag, at = _varint(contents, at - 1)
        once, each, inner = fields.get(tag, UNKNOWN)
        total += once
        kind = tag & 7
        if kind == LENGTH:
            length = contents[at]
            at += 1
            if length > 127:
                length, at = _varint(contents, at - 1)
            if at + length > end:
                raise ValueError(at)
            if inner is None:
                total += each * length
                at += length
            elif length:
                if len(around) >= DEEPEST:
                    raise RecursionError
                around.append((end, fields))
                end, fields = at + length, inner
        elif kind == VARINT:
            while contents[at] > 127:
                at += 1
            at += 1
        elif kind == FOUR_BYTES:
            at += 4
        elif kind == EIGHT_BYTES:
            at += 8
        elif kind not in GROUPS:
            raise ValueError(at)
    return total


def _varint(contents: bytes, at: int) -> tuple[int, int]:
    """Read a number that is stored in pieces of seven bits; return the number and the index after its last byte."""
    number = 0
    for place in range(10):
        piece = contents[at + place]
        number |= (piece & 127) << 7 * place
        if piece < 128:
            return number, at + place + 1
    raise ValueError(at)


# The table


@functools.cache
def messages() -> dict[int, Field]:
    """Map the tag of each field of a model to its Field; the Field of a message lists the fields of this message."""
    known: dict[str, dict[int, Field]] = {}
    return _fields(onnx.ModelProto.DESCRIPTOR, known)


def _fields(descriptor: Any, known: dict[str, dict[int, Field]]) -> dict[int, Field]:
    name = descriptor.full_name
    if name not in known:
        known[name] = table = {}  # before its fields: a graph holds nodes that hold graphs
        for field in descriptor.fields:
            part = PARTS.get(f"{descriptor.name}.{field.name}")
            if field.message_type is not None:
                inner = _fields(field.message_type, known)
                once = part or PARTS.get(field.message_type.name, MESSAGE)
                table[field.number << 3 | LENGTH] = Field(once, 0, inner)
            elif field.type in (field.TYPE_STRING, field.TYPE_BYTES):
                table[field.number << 3 | LENGTH] = Field(part or TEXT, LETTER)
            elif _is_list(field):
                table[field.number << 3 | LENGTH] = Field(NUMBER, PACKED)
                for kind in (VARINT, FOUR_BYTES, EIGHT_BYTES):
                    table[field.number << 3 | kind] = Field(NUMBER, 0)
    return known[name]


def _is_list(field: Any) -> bool:
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


@functools.cache
def max_memory_per_byte() -> int:
    """Return the most memory that one byte of a file can cause; the shortest field has two bytes."""
    return max(*PARTS.values(), TEXT, NUMBER, MESSAGE) // 2
