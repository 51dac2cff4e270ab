"""Apply given lengths: shapes of inputs, {"x": (1, 3, 48, 64)}, or lengths of free axes, {"h": 48}."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from minorm.support.safe_names import printable

Shapes = Mapping[str, int | Sequence[int]]
Declared = Mapping[str, Sequence[int | str] | None]  # as in a file; a str is a free axis, None a free rank

NAMELESS = ("", "?")
FREE = -1


def settle(declared: Declared, shapes: Shapes) -> dict[str, tuple[int | str, ...] | None]:
    """Return the shapes of all inputs, in which given lengths replace the free lengths.

    The length of a free axis goes to every axis of that name. A key that names both an input and an axis means the
    input. If a length does not fit, a ValueError names the length and its axis.
    """
    free = {n for dims in declared.values() for n in dims or () if isinstance(n, str)} - set(NAMELESS)
    wholes: dict[str, tuple[int, ...]] = {}
    axes: dict[str, int] = {}
    for key, value in shapes.items():
        lengths = _lengths(key, value)
        if key in declared:
            wholes[key] = lengths
        elif key not in free:
            raise ValueError(f"there is no input and no free axis {key!r}; the model has {listed(declared)}")
        elif len(lengths) != 1:
            raise ValueError(
                f"shapes[{key!r}] has {len(lengths)} lengths; expected one length, because {key!r} is an axis"
            )
        else:
            axes[key] = lengths[0]
    bound = dict(axes)
    for name, lengths in wholes.items():
        for axis, (label, n) in enumerate(_fitted(name, declared[name], lengths)):
            if label in axes and axes[label] != n:
                raise ValueError(
                    f"shapes: axis {axis} of {name!r} has length {n}, but the axis name {label!r} has length "
                    f"{axes[label]}"
                )
            bound.setdefault(label, n)
    return {
        name: wholes[name] if name in wholes else None if dims is None else tuple(_of(bound, n) for n in dims)
        for name, dims in declared.items()
    }


def declared_of(entry: Any) -> tuple[int | str, ...] | None:
    """Return the lengths that a ValueInfoProto declares; the length of an unnamed free axis is "".

    Return None if the rank is free.
    """
    kind = entry.type.tensor_type
    if not kind.HasField("shape"):
        return None
    return tuple(length_of(dim) for dim in kind.shape.dim)


def length_of(dim: Any) -> int | str:
    """Return the length of an axis in a file, or the name of a free axis; "" for a free axis without a name.

    A length of -1 is also a free axis: older exporters, such as Paddle2ONNX 0.x, write -1, and onnxruntime reads -1 as
    a free axis.
    """
    return int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value != FREE else str(dim.dim_param)


def listed(declared: Declared) -> str:
    """Format the inputs for a message: `x (n, 3, h, w), ids (n)`."""
    return ", ".join(
        printable(name if dims is None else f"{name} ({', '.join(map(str, dims))})") for name, dims in declared.items()
    )


def _lengths(key: str, value: Any) -> tuple[int, ...]:
    try:
        given = [value] if hasattr(value, "__index__") else list(value)
        lengths = tuple(operator.index(n) for n in given if not isinstance(n, bool))
    except TypeError:
        lengths, given = (), [None]
    if len(lengths) != len(given) or any(n < 0 for n in lengths):
        raise ValueError(f"shapes[{key!r}] is {value!r}; expected one or more lengths, each an int of at least 0")
    return lengths


def _fitted(name: str, dims: Sequence[int | str] | None, lengths: Sequence[int]) -> Iterator[tuple[str, int]]:
    """Yield the name of each axis and its length; raise ValueError if the file has another length."""
    if dims is not None and len(dims) != len(lengths):
        said = f"{len(dims)}: {listed({name: dims})}"
        raise ValueError(f"shapes[{name!r}] has {len(lengths)} axes; the file says {said}")
    for axis, n in enumerate(lengths):
        own = "" if dims is None else dims[axis]
        if isinstance(own, int) and own != n:
            raise ValueError(f"shapes: axis {axis} of {name!r} has length {n}; the file says {own}")
        yield (own if isinstance(own, str) else ""), n


def _of(bound: Mapping[str, int], length: int | str) -> int | str:
    return bound.get(length, length) if isinstance(length, str) and length not in NAMELESS else length
