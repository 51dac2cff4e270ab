"""Interprets pickles. A pickle is a program for a stack machine; our machine knows only what a state_dict needs.

The machine makes dicts, lists, tuples, texts and numbers. It computes the results of three known functions itself, and
refuses every other name. So a function that the file names is never called. A tensor is only described: a `Tensor` says
where in the file the tensor's numbers are. The reader compares all descriptions with the file before it makes a tensor.

For each instruction (a "word"), the machine counts the bytes of memory that the instruction takes, plus a constant for
its time. The machine stops before a pickle takes far more memory than the pickle's length justifies.
"""

from __future__ import annotations

import reprlib
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from minorm.devices import dtypes

STORAGES = {
    "DoubleStorage": dtypes.float64, "FloatStorage": dtypes.float32, "HalfStorage": dtypes.float16,
    "BFloat16Storage": dtypes.bfloat16, "LongStorage": dtypes.int64, "IntStorage": dtypes.int32,
    "ShortStorage": dtypes.int16, "CharStorage": dtypes.int8, "ByteStorage": dtypes.uint8,
    "BoolStorage": dtypes.bool,
}  # fmt: skip
REBUILD, PARAMETER = "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter"
ORDERED = "collections OrderedDict"
EXPECTED = "expected a state_dict: dicts, lists, numbers, tensors"
MAX_MARKS = 1000  # open at a time
MAX_AXES = 64  # NumPy's limit
MAX_KEY = (1 << 61) - 1  # larger integers have the hash of a smaller integer, and a dict of such keys is slow

# The most bytes that a word takes besides its text: for its value, and for the places on the stack and in the memory
DICT, LIST, TUPLE, VALUE, MEMORY, STORAGE, TENSOR, PLACE = 400, 256, 200, 48, 112, 256, 512, 16
WORD = 32  # counted for every word; some words make nothing, but millions of them take seconds


class Storage(NamedTuple):
    """Describes the numbers in the file's entry data/KEY."""

    key: str
    kind: str  # of STORAGES
    numbers: int


class Tensor(NamedTuple):
    """Describes a view of a storage; offset and strides count numbers, not bytes."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    negative: bool = False  # True if the numbers are stored with the opposite sign: PyTorch's lazy negation


class Name(str):
    """A name in the pickle, in the form "module name"."""

    __slots__ = ()


def run(pickle: bytes, room: int) -> Any:
    """Return the value of the pickle; interpreting it may take at most `room` bytes of memory.

    Raise ValueError if the pickle has a word, a name or a value that a state_dict does not need.
    """
    machine = _Machine(pickle, room)
    try:
        while not machine.ended:
            machine.cost(WORD)
            WORDS.get(machine.take(1), _Machine.unknown)(machine)
        return machine.stack[-1]
    except (IndexError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"its pickle is damaged ({type(error).__name__}: {error})") from None


class _Machine:
    """The stack machine: the program, a stack with marks, and a memory."""

    def __init__(self, pickle: bytes, room: int) -> None:
        self.pickle, self.at, self.room = pickle, 0, room
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memory: dict[int, Any] = {}
        self.ended = False

    def take(self, count: int) -> bytes:
        """Return the next bytes of the program."""
        found = self.pickle[self.at : self.at + count]
        if len(found) < count:
            raise ValueError("its pickle breaks off: not enough data")
        self.at += count
        return found

    def number(self, form: str) -> int:
        """Return the next bytes as a number."""
        return int(struct.unpack(form, self.take(struct.calcsize(form)))[0])

    def line(self) -> str:
        """Return the next bytes up to the end of a line."""
        end = self.pickle.find(b"\n", self.at)
        if end < 0:
            raise ValueError("its pickle breaks off: not enough data")
        text = self.take(end - self.at).decode("ascii")
        self.take(1)
        return text

    def cost(self, size: int) -> None:
        """Count `size` bytes of memory, before the machine takes them; raise ValueError if the room is used up."""
        self.room -= size
        if self.room < 0:
            raise ValueError(f"its pickle of {len(self.pickle)} bytes has far more opcodes, or makes far more objects, "
                             "than a state_dict")  # fmt: skip

    def push(self, value: Any, size: int = VALUE) -> None:
        """Put a value on the stack."""
        self.cost(size)
        self.stack.append(value)

    def pop(self) -> Any:
        """Remove and return the uppermost value, which must be above the uppermost mark."""
        if self.marks and len(self.stack) <= self.marks[-1]:
            raise ValueError("its pickle is damaged: it takes a value from below a mark")
        return self.stack.pop()

    def marked(self) -> list[Any]:
        """Remove and return all values above the uppermost mark; remove this mark."""
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def text(self, form: str) -> None:
        """Read a length and a text of that length, and push the text."""
        raw = self.take(self.number(form))
        self.push(raw.decode("utf-8", "surrogatepass"), VALUE + 32 + (len(raw) if raw.isascii() else 4 * len(raw)))

    def remember(self, place: int) -> None:
        """Keep the uppermost value in the memory."""
        self.cost(MEMORY)
        self.memory[place] = self.stack[-1]

    def mark(self) -> None:
        """Begin a group of values."""
        if len(self.marks) >= MAX_MARKS:
            raise ValueError(f"its pickle is nested more than {MAX_MARKS} deep")
        self.marks.append(len(self.stack))

    def several(self, count: int) -> None:
        """Replace the uppermost `count` values by one tuple."""
        items = [self.pop() for _ in range(count)]
        self.push(tuple(reversed(items)), TUPLE)

    def extend(self, items: list[Any]) -> None:
        """Append the items to the uppermost list."""
        if type(self.stack[-1]) is not list:
            raise ValueError("its pickle is damaged: it appends to an object that is not a list")
        self.cost(PLACE * len(items))
        self.stack[-1].extend(items)

    def update(self, items: list[Any]) -> None:
        """Add keys and values to the uppermost dict."""
        if type(self.stack[-1]) is not dict or len(items) % 2:
            raise ValueError("its pickle is damaged: it sets items of an object that is not a dict")
        for key in items[::2]:
            _check_key(key)
        self.cost(50 * len(items))
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def build(self) -> None:
        """Drop the attributes of an object; a state_dict has some, but they are not needed."""
        if type(self.pop()) is not dict or type(self.stack[-1]) is not dict:
            raise ValueError(f"the file holds an object of a class; {EXPECTED}")

    def known(self, name: str) -> None:
        """Push a name if the machine knows it; else raise ValueError."""
        module, _, kind = name.partition(" ")
        if name not in (REBUILD, PARAMETER, ORDERED) and not (module == "torch" and kind in STORAGES):
            raise ValueError(f"the file names {name[:80].replace(' ', '.')}, which minorm does not run; expected a "
                             "state_dict: torch.save(model.state_dict(), path)")  # fmt: skip
        self.push(Name(name), VALUE + 64)

    def known_by_texts(self) -> None:
        """Push a known name; its two parts, module and name, are on the stack."""
        second, first = self.pop(), self.pop()
        if type(first) is not str or type(second) is not str:
            raise ValueError("its pickle is damaged: it names an object by something that is not a text")
        self.known(f"{first[:80]} {second[:80]}")

    def storage(self) -> None:
        """Replace the uppermost tuple by the Storage that it describes."""
        tag, kind, key, _, count = self.pop()
        if tag != "storage" or type(kind) is not Name or not kind.startswith("torch "):
            raise ValueError(f"the file refers to something other than a storage; {EXPECTED}")
        if not (type(key) is str or _are_sizes((key,))) or not _are_sizes((count,)):
            raise ValueError("its pickle is damaged: a storage has no key or no size")
        self.push(Storage(str(key), kind.removeprefix("torch "), count), STORAGE)

    def answer(self) -> None:
        """Replace a known function and its arguments on the stack by the result, without calling the function."""
        arguments, function = self.pop(), self.pop()
        if type(function) is not Name or type(arguments) is not tuple:
            raise ValueError("its pickle is damaged: it calls an object that is no function")
        if function == ORDERED:
            self.push({}, DICT)
            for pair in arguments[0] if arguments else ():
                key, value = pair
                self.update([key, value])
        elif function == PARAMETER:
            self.push(arguments[0])
        elif function == REBUILD:
            self.push(_tensor(arguments), TENSOR)
        else:
            raise ValueError(f"the file calls {function.replace(' ', '.')}, which is no function")

    def stop(self) -> None:
        """End the program."""
        self.ended = True

    def unknown(self) -> None:
        """Raise ValueError for a word that this machine does not know."""
        word = self.pickle[self.at - 1 : self.at]
        raise ValueError(f"its pickle has the unknown opcode {word!r}; {EXPECTED}")


def _check_key(key: Any) -> None:
    """Raise ValueError for a key that no state_dict has; tuples, for example, are slow and may all share one hash."""
    if type(key) not in (str, int, float, bool, type(None)):
        raise ValueError("a dict in the file has a key that is neither a text nor a number")
    if type(key) is int and abs(key) >= MAX_KEY:
        raise ValueError("a dict in the file has an integer key of more than 61 bits")


def _are_sizes(values: Any) -> bool:
    """Return True for a tuple of non-negative integers that NumPy can hold."""
    return type(values) is tuple and all(type(value) is int and 0 <= value < 1 << 63 for value in values)


def _tensor(arguments: tuple[Any, ...]) -> Tensor:
    """Return the description of a tensor, which must fit in its storage; the metadata may ask to negate its numbers."""
    storage, offset, shape, strides = (*arguments[:4], None, None, None, None)[:4]
    metadata = arguments[6] if len(arguments) > 6 else None
    if type(storage) is not Storage or not all(map(_are_sizes, ((offset,), shape, strides))):
        raise ValueError(
            "its pickle is damaged: a tensor does not consist of a storage, an offset, a shape and strides"
        )
    if len(shape) != len(strides) or len(shape) > MAX_AXES:
        raise ValueError(f"a tensor has {len(shape)} axes and {len(strides)} strides; expected the same number, and at "
                         f"most {MAX_AXES}")  # fmt: skip
    last = offset + sum((length - 1) * step for length, step in zip(shape, strides, strict=True))
    if (last >= storage.numbers) if 0 not in shape else (offset > storage.numbers):
        raise ValueError(f"a tensor of shape {shape} does not fit into its storage of {storage.numbers} numbers")
    if metadata not in (None, {}, {"neg": True}, {"neg": False}) or (metadata and storage.kind == "BoolStorage"):
        said = reprlib.repr(metadata)
        raise ValueError(f"a tensor of a {storage.kind} has the metadata {said}; expected None or {{'neg': True}}")
    return Tensor(storage, offset, shape, strides, metadata == {"neg": True})


WORDS: dict[bytes, Callable[[_Machine], Any]] = {
    b"\x80": lambda m: m.take(1),  # PROTO
    b"\x95": lambda m: m.take(8),  # FRAME
    b".": _Machine.stop,
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    b"J": lambda m: m.push(m.number("<i")),
    b"K": lambda m: m.push(m.number("<B"), PLACE),
    b"M": lambda m: m.push(m.number("<H")),
    b"\x8a": lambda m: m.push(int.from_bytes(m.take(m.number("<B")), "little", signed=True), VALUE + 256),
    b"G": lambda m: m.push(struct.unpack(">d", m.take(8))[0]),
    b"X": lambda m: m.text("<I"),
    b"\x8c": lambda m: m.text("<B"),
    b"\x8d": lambda m: m.text("<Q"),
    b"}": lambda m: m.push({}, DICT),
    b"]": lambda m: m.push([], LIST),
    b")": lambda m: m.push(()),
    b"(": _Machine.mark,
    b"q": lambda m: m.remember(m.number("<B")),
    b"r": lambda m: m.remember(m.number("<I")),
    b"\x94": lambda m: m.remember(len(m.memory)),
    b"h": lambda m: m.push(m.memory[m.number("<B")], PLACE),
    b"j": lambda m: m.push(m.memory[m.number("<I")], PLACE),
    b"\x85": lambda m: m.several(1),
    b"\x86": lambda m: m.several(2),
    b"\x87": lambda m: m.several(3),
    b"t": lambda m: m.push(tuple(m.marked()), TUPLE),
    b"a": lambda m: m.extend([m.pop()]),
    b"e": lambda m: m.extend(m.marked()),
    b"s": lambda m: m.update([m.pop(), m.pop()][::-1]),
    b"u": lambda m: m.update(m.marked()),
    b"b": _Machine.build,
    b"c": lambda m: m.known(f"{m.line()} {m.line()}"),
    b"\x93": _Machine.known_by_texts,
    b"Q": _Machine.storage,
    b"R": _Machine.answer,
}
