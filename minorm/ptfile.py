"""PyTorch's .pt files, read without running what is in them.

Such a file is a zip: `data.pkl`, a pickle that says what there is, and `data/0`, `data/1` ..., the tensors' bytes.
A pickle is a program for a stack machine. The machine here knows the few words that a state_dict needs: dicts, lists,
tuples, texts, numbers, and three functions of PyTorch's, which it answers itself. Every other name is refused, so
nothing that the file names is ever called.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, BinaryIO

import numpy as np

from minorm import dtypes

STORAGES = {
    "DoubleStorage": dtypes.float64, "FloatStorage": dtypes.float32, "HalfStorage": dtypes.float16,
    "BFloat16Storage": dtypes.bfloat16, "LongStorage": dtypes.int64, "IntStorage": dtypes.int32,
    "ShortStorage": dtypes.int16, "CharStorage": dtypes.int8, "ByteStorage": dtypes.uint8,
    "BoolStorage": dtypes.bool,
}  # fmt: skip
REBUILD, PARAMETER, ORDERED = "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter", (
    "collections OrderedDict"
)  # fmt: skip
MOST_WORDS = 10_000_000
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
VALUES = {"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
NEW: dict[str, Callable[[], Any]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}


class Name(str):
    """A name that the pickle asks for, "module name"."""

    __slots__ = ()


def is_one(file: BinaryIO) -> bool:
    """Whether this is a zip with a data.pkl in it; the file is read from its beginning afterwards."""
    zipped = file.read(4) == b"PK\x03\x04"
    file.seek(0)
    if not zipped:
        return False
    import zipfile  # it is slow to import, and few programs read such a file

    try:
        with zipfile.ZipFile(file) as archive:
            return any(name.endswith("/data.pkl") for name in archive.namelist())
    except Exception:  # noqa: BLE001  a broken archive, which tensorfile names
        return False


def read(file: BinaryIO, path: Any) -> Any:
    """What was saved: its tensors are arrays, its dicts, lists, tuples, texts and numbers themselves.

    ValueError for a file that is damaged, big-endian, or holds anything else: a whole model, an object of a class.
    """
    import zipfile

    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            place = next(name for name in names if name.endswith("/data.pkl"))
            folder = place.removesuffix("data.pkl")
            order = folder + "byteorder"
            if order in names and archive.read(order) != b"little":
                raise ValueError("its tensors are big-endian; expected little-endian ones")
            return _run(archive.read(place), lambda key: archive.read(f"{folder}data/{key}"))
    except (zipfile.BadZipFile, KeyError, IndexError, EOFError, TypeError, AttributeError) as error:
        raise ValueError(f"load: {path}: the file is damaged ({error})") from error
    except ValueError as error:
        raise ValueError(f"load: {path}: {error}") from None


def _run(pickle: bytes, bytes_of: Callable[[str], bytes]) -> Any:
    """The machine: a stack, marks on it, and a memory."""
    import pickletools

    stack: list[Any] = []
    marks: list[int] = []
    memory: dict[Any, Any] = {}
    storages: dict[str, Any] = {}

    def marked() -> list[Any]:
        start = marks.pop()
        items = stack[start:]
        del stack[start:]
        return items

    for count, (word, argument, _) in enumerate(pickletools.genops(pickle)):
        name = word.name
        if count > MOST_WORDS:
            raise ValueError(f"its pickle has more than {MOST_WORDS} words")
        if name in ("PROTO", "FRAME"):
            continue
        if name == "STOP":
            return _plain(stack[-1])
        if name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name in VALUES:
            stack.append(argument)
        elif name in NEW:
            stack.append(NEW[name]())
        elif name == "MARK":
            marks.append(len(stack))
        elif name in ("BINPUT", "LONG_BINPUT"):
            memory[argument] = stack[-1]
        elif name == "MEMOIZE":
            memory[len(memory)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memory[argument])
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            size = int(name[-1])
            stack[-size:] = [tuple(stack[-size:])]
        elif name == "TUPLE":
            stack.append(tuple(marked()))
        elif name in ("APPEND", "APPENDS"):
            items = [stack.pop()] if name == "APPEND" else marked()
            stack[-1].extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = [stack.pop(-2), stack.pop()] if name == "SETITEM" else marked()
            stack[-1].update(zip(items[::2], items[1::2], strict=True))
        elif name == "BUILD":
            if not isinstance(stack.pop(-1), dict) or not isinstance(stack[-1], dict):
                raise ValueError("it holds an object of a class; expected a state_dict: dicts, lists, numbers, tensors")
        elif name == "GLOBAL":
            stack.append(_known(str(argument)))
        elif name == "STACK_GLOBAL":
            second, first = stack.pop(), stack.pop()
            stack.append(_known(f"{first} {second}"))
        elif name == "BINPERSID":
            stack.append(_storage(stack.pop(), bytes_of, storages))
        elif name == "REDUCE":
            arguments = stack.pop()
            stack.append(_answer(stack.pop(), arguments))
        else:
            raise ValueError(f"its pickle has the word {name}; expected a state_dict: dicts, lists, numbers, tensors")
    raise ValueError("its pickle does not end")


def _known(name: str) -> Name:
    module, _, kind = name.partition(" ")
    if name in (REBUILD, PARAMETER, ORDERED) or (module == "torch" and kind in STORAGES):
        return Name(name)
    raise ValueError(f"it asks for {name.replace(' ', '.')}, which is not called; expected a state_dict: "
                     "torch.save(model.state_dict(), path)")  # fmt: skip


def _storage(given: Any, bytes_of: Callable[[str], bytes], storages: dict[str, Any]) -> Any:
    """The numbers of a storage, in one axis."""
    tag, kind, key, _, count = given
    dtype = np.dtype(STORAGES[kind.partition(" ")[2]])
    if tag != "storage" or not isinstance(kind, Name):
        raise ValueError(f"it refers to {tag!r}; expected a storage")
    if key not in storages:
        storages[key] = np.frombuffer(bytearray(bytes_of(str(key))), dtype)
    if len(storages[key]) < count:
        raise ValueError(f"storage {key} has {len(storages[key])} numbers; expected {count}")
    return storages[key]


def _answer(function: Any, arguments: tuple[Any, ...]) -> Any:
    """What a function of PyTorch's that is known here would return."""
    if not isinstance(function, Name):
        raise ValueError("it calls what is no function")
    if function == ORDERED:
        return dict(*arguments)
    if function == PARAMETER:
        return arguments[0]
    if function != REBUILD:
        raise ValueError(f"it calls {function}")
    storage, offset, shape, strides = arguments[:4]
    last = (
        offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) if 0 not in shape else offset - 1
    )
    if min((offset, *shape, *strides)) < 0 or last >= len(storage):
        raise ValueError(f"a tensor of shape {shape} does not fit into its {len(storage)} numbers")
    if prod(shape) > len(storage) and prod(n for n, step in zip(shape, strides, strict=True) if step) > len(storage):
        raise ValueError(f"a tensor of shape {shape} repeats its {len(storage)} numbers")
    steps = [step * storage.itemsize for step in strides]
    return np.lib.stride_tricks.as_strided(storage[offset:], shape, steps).copy()


def _plain(value: Any) -> Any:
    """The value, if nothing of the machine is left in it."""
    if isinstance(value, Name):
        raise ValueError(f"it holds {value}; expected a state_dict")
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
        _plain(part)
    return value
