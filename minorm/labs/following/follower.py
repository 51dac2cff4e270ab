"""Holds the numbers of followed arrays for the judge, runs each operation, and lists the operation.

    follow = Follower()
    x = follow.array(numbers, rows=True)
    var = follow.call(student, "welford", x)

If `rows` is true, the follower also lists which rows of this array each operation reads. The rows are counted along
`axis`, by default axis 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minorm.kernels.protocol import Statistics
from minorm.labs.calling.followed_array import dtype_named
from minorm.labs.calling.objects import FOLLOW, Followed
from minorm.labs.calling.student import Failure
from minorm.labs.following import numpy_operations
from minorm.labs.following.listed import Buffer, Event, Value, is_view_index, places, shown, with_axes

MOST = 200_000  # operations
LONGEST = 5_000_000  # numbers that it lists
MAKING = {*numpy_operations.SHAPED, "zeros_like", "ones_like", "empty_like", "full_like"} - {"broadcast_to"}
MOVING = {
    "append", "array", "asanyarray", "asarray", "ascontiguousarray", "assign", "astype", "concatenate", "column_stack",
    "copy", "copyto", "fill", "flatten", "hstack", "index", "ravel", "repeat", "reshape", "roll", "stack", "take",
    "tile", "vstack", "view",
}  # fmt: skip
AXES = {"broadcast_to", "expand_dims", "flip", "moveaxis", "squeeze", "swapaxes", "transpose"}  # other views
COPYING = {"array", "asanyarray", "asarray", "ascontiguousarray", "copy", "astype"}


@dataclass(eq=False)
class Follower:
    """The arrays that a student got, and the operations on them.

    plain      how many numbers the student's process may get
    decisions  how many truth values the process may get
    reason     why the function could not be followed; empty if the function was followed
    """

    plain: int = 0
    decisions: int = 0
    events: list[Event] = field(default_factory=list)
    reason: str = ""
    values: list[Value] = field(default_factory=list)
    answers: list[Value] = field(default_factory=list)
    _buffers: dict[int, tuple[Any, Buffer]] = field(default_factory=dict)
    _data: list[tuple[int, int, Any, Any]] = field(default_factory=list)  # of arrays whose rows it sees
    _written: int = 0

    def array(self, numbers: Any, rows: bool = False, axis: int = 0) -> Followed:
        """Copy these numbers into an array for the student's function."""
        own = np.array(numbers, order="C")
        value = self._held(own, data=True)
        if rows:
            row, column = places(own.shape, axis)
            self._see_rows(own, value, row, column)
        return self._named(value)

    def call(self, student: Any, name: str, *args: Any, **options: Any) -> Any:
        """Call the student's function; raise a Failure "not tried" if an operation cannot be followed."""
        try:
            answer = student.call(name, args, options, {FOLLOW: self.serve})
        except Failure as failure:
            if failure.status != "error":
                raise
            why = self.reason or f"the check follows each operation, and cannot follow this: {failure}"
            raise Failure("not tried", f"{name}: {why}") from None
        if self.reason:
            raise Failure("not tried", f"{name}: {self.reason}")
        self.answers = self._found_in(answer)
        return self._resolved(answer)

    def serve(self, kind: str, name: str, args: Any, options: Any) -> Any:
        """Run an operation that the student's process asks for, and return the result for this process."""
        try:
            if kind == "refused":
                raise numpy_operations.Unknown(name)
            return self._served(kind, name, args, options)
        except numpy_operations.Unknown as error:
            self.reason = self.reason or f"{error}, which the check cannot follow"
            raise TypeError(self.reason) from None
        except OverflowError as error:
            raise ValueError(str(error)) from None

    def _served(self, kind: str, name: str, args: Any, options: Any) -> Any:
        if len(self.events) >= MOST or self._written > LONGEST:
            raise numpy_operations.Unknown("more operations than expected")
        given: list[Value] = []
        positional = [self._taken(value, given) for value in args["list"]]
        named = {key: self._taken(value, given) for key, value in options["dict"].items()}
        if kind == "conversion":
            raise numpy_operations.Unknown(f"{name} of an array (or list(), memoryview() or a similar call)")
        if kind == "plain":
            return {"plain": self._plain(name, given[0])}
        if name == "array" and named.get("copy") is False:
            named.pop("copy")
        result = numpy_operations.evaluated(kind, name, positional, named)
        return self._noted(kind, name, positional, named, given, result)

    # What comes

    def _taken(self, packed: Any, given: list[Value]) -> Any:
        ((kind, value),) = packed.items()
        if kind == "followed":
            found = self.values[value]
            given.append(found)
            return found.value
        if kind in ("tuple", "list"):
            return (tuple if kind == "tuple" else list)(self._taken(item, given) for item in value)
        if kind == "slice":
            return slice(*(self._taken(item, given) for item in value))
        if kind == "dtype":
            if not re.fullmatch(r"[a-z]+[0-9]*", value):
                raise numpy_operations.Unknown(f"the type {value}")
            return dtype_named(value)
        if kind == "ellipsis":
            return ...
        if isinstance(value, str) and re.match(r"[<>|=]?[SUVOMma]\d", value):
            raise numpy_operations.Unknown(f"the type {value[:20]}")
        return value

    def _plain(self, name: str, source: Value) -> Any:
        """Return a number or a truth value to the student's process.

        The process needs a few numbers for decisions, but must not get all the data.
        """
        size = np.size(source.value)
        if name == "bool":
            self.decisions -= 1
            if self.decisions < 0:
                raise numpy_operations.Unknown("`if` or `while` for so many single numbers")
            return bool(source.value)
        self.plain -= size
        if self.plain < 0:
            words = {"item": ".item()", "tolist": ".tolist()"}.get(name, f"{name}() (or math's and statistics')")
            raise numpy_operations.Unknown(f"{words}, which turns a {source.value.dtype} of NumPy into a Python number")
        if name in ("item", "tolist"):
            return getattr(source.value, name)()
        return {"int": int, "float": float}[name](source.value)

    # What goes

    def _noted(
        self, kind: str, name: str, args: list[Any], options: dict[str, Any], given: list[Value], result: Any
    ) -> Any:
        place = len(self.events)
        if (kind == "index" and name == "assign") or (result is None and name in ("copyto", "fill", "at.at")):
            outputs = [given[0]]
            reply: dict[str, Any] = {"plain": None}
            given[0].buffer.depends |= any(value.buffer.depends for value in given[1:])
            kept: Any = [given[0].value]
            what = "moved"
        else:
            found = list(result) if isinstance(result, (tuple, list)) else [result]
            if name.endswith(".at"):
                found = [args[0]]
            data = name not in MAKING and any(value.buffer.depends for value in given)
            outputs = [self._output(value, given, data, place, kind, args) for value in found]
            what = self._kind(name, outputs, given)
            if what == "moved" and name in COPYING:
                self._see_copy(given, outputs)
            names = [{"followed": self._reply(value)} for value in outputs]
            together = "tuple" if isinstance(result, tuple) else "list"
            reply = {together: names} if isinstance(result, (tuple, list)) else names[0]
            kept = found if what != "view" else []
        for value in given:
            if what not in ("view", "made"):
                value.buffer.read = place
        numbers = [
            np.ravel(np.asarray(value)).astype(np.float64) for value in kept if np.asarray(value).dtype.kind != "c"
        ]
        flat = np.concatenate(numbers) if numbers else np.zeros(0)
        if what != "view":
            self._written += sum(np.size(value.value) for value in outputs)
        types = [str(value.value.dtype) for value in outputs]
        asked = [options.get("dtype"), *(args[1:2] if name in ("view", "astype") else [])]
        types += [str(np.dtype(one)) for one in asked if one is not None and kind != "index"]
        self.events.append(Event(place, shown(kind, name), what, given, outputs, types, flat))
        return reply

    def _output(self, value: Any, given: list[Value], data: bool, place: int, kind: str, args: list[Any]) -> Value:
        if isinstance(value, (bool, int, float)):
            value = np.asarray(value)[()]
        if not isinstance(value, (np.ndarray, np.generic)):
            raise numpy_operations.Unknown(f"a result that is a {type(value).__name__}")
        if isinstance(value, np.ndarray):
            made = self._held(value, data, place)
            made.buffer.depends |= data
        elif kind == "index" and is_view_index(args[1]):  # a number that lies where the array does
            made = self._new(value, given[0].buffer)
            made.rows, made.columns = self._rows_of(args[0][with_axes(args[1])])
        else:
            made = self._new(value, Buffer(1, data, place))
        return made

    def _new(self, value: Any, buffer: Buffer) -> Value:
        self.values.append(Value(len(self.values), value, buffer))
        return self.values[-1]

    def _held(self, value: Any, data: bool, place: int = -1) -> Value:
        root = value
        while isinstance(root.base, np.ndarray):
            root = root.base
        if id(root) not in self._buffers:
            self._buffers[id(root)] = root, Buffer(root.size, data, place)
        made = self._new(value, self._buffers[id(root)][1])
        made.rows, made.columns = self._rows_of(value)
        return made

    def _reply(self, value: Value) -> list[Any]:
        return [value.number, *_form(value)]

    def _named(self, value: Value) -> Followed:
        return Followed(value.number, *_form(value))

    def _kind(self, name: str, outputs: list[Value], given: list[Value]) -> str:
        if name in MAKING:
            return "made"
        if name not in MOVING and name not in AXES:
            views = name in ("split", "array_split", "hsplit", "vsplit", "atleast_1d", "atleast_2d", "diagonal")
            return "view" if views else "computed"
        return "view" if all(any(o.buffer is g.buffer for g in given) for o in outputs) else "moved"

    # Rows of the data

    def _see_rows(self, array: Any, value: Value, row: Any, column: Any) -> None:
        """Store the row and column of each number in arrays with the same order in memory as the given array.

        So the rows and columns of the numbers in a view of `array` are found by taking the same view of the two arrays.
        """
        start = array.__array_interface__["data"][0]
        flat = []
        for found in (row, column):
            flat.append(np.empty(array.size, f"i{array.itemsize}"))
            np.ndarray(array.shape, flat[-1].dtype, flat[-1], 0, array.strides)[...] = found
        row, column = flat
        self._data.append((start, start + array.nbytes, row, column))
        value.buffer.rows = True
        value.rows, value.columns = self._rows_of(array)

    def _see_copy(self, given: list[Value], outputs: list[Value]) -> None:
        """If an operation has copied all the data, record the copy's rows and columns.

        Reads of the copy then count too.
        """
        if len(given) == len(outputs) == 1 and given[0].buffer.rows and given[0].rows is not None:
            source, copy = given[0].value, outputs[0].value
            whole = isinstance(copy, np.ndarray) and copy.ndim and source.nbytes == _root(source).nbytes
            dense = copy.nbytes == _root(copy).nbytes and min(copy.strides, default=0) >= 0
            if whole and dense and copy.shape == source.shape and copy.dtype == source.dtype:
                self._see_rows(copy, outputs[0], *self._places_of(source))

    def _places_of(self, array: Any) -> tuple[Any, Any]:
        """Return the row and the column of each number in `array`.

        Return two empty arrays if `array` is not part of the data.
        """
        low, high = np.lib.array_utils.byte_bounds(array)
        for start, end, row, column in self._data:
            if start <= low and high <= end:
                if array.itemsize != row.itemsize:  # a view with another element size: return all rows and columns
                    return row, column
                offset = array.__array_interface__["data"][0] - start
                one, other = (np.ndarray(array.shape, p.dtype, p, offset, array.strides) for p in (row, column))
                return one, other
        return np.zeros(0), np.zeros(0)

    def _rows_of(self, array: Any) -> tuple[tuple[int, int] | None, tuple[int, int]]:
        if not isinstance(array, np.ndarray) or not array.size:
            return None, (0, 0)
        row, column = self._places_of(array)
        if not row.size:
            return None, (0, 0)
        return (int(row.min()), int(row.max())), (int(column.min()), int(column.max()))

    # Answers

    def _found_in(self, answer: Any) -> list[Value]:
        if isinstance(answer, Followed):
            return [self.values[answer.number]]
        if isinstance(answer, Statistics):
            return self._found_in(answer.block)
        if isinstance(answer, (tuple, list)):
            return [value for item in answer for value in self._found_in(item)]
        return []

    def _resolved(self, answer: Any) -> Any:
        if isinstance(answer, Followed):
            return np.array(self.values[answer.number].value)
        if isinstance(answer, Statistics):
            return Statistics(self._resolved(answer.block))
        if isinstance(answer, (tuple, list)):
            return type(answer)(self._resolved(item) for item in answer)
        return answer

    def leading_to(self, answers: list[Value] | None = None) -> list[Event]:
        """Return, in order, the operations on which the answers depend."""
        needed = {value.buffer for value in (self.answers if answers is None else answers)}
        found = []
        for event in reversed(self.events):
            if any(value.buffer in needed for value in event.outputs):
                needed.update(value.buffer for value in event.inputs)
                found.append(event)
        return found[::-1]


def _root(array: Any) -> Any:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _form(value: Value) -> tuple[tuple[int, ...], str]:
    return tuple(np.shape(value.value)), str(value.value.dtype)
