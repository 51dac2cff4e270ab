"""A double of the module cupy for machines without a GPU: arrays in NumPy's memory that are as strict as CuPy's.

It refuses what NumPy allows and CuPy refuses: NumPy arrays among the arguments, arguments that CuPy's functions lack,
types for which CuPy has no loop, implicit conversion to NumPy. Where the two differ, it does as CuPy: reductions give
arrays without axes, never numbers; where() of bfloat16 is float32; results lie in CuPy's order; if several values are
written to one place, any may be the last; fresh memory holds NaN. Every copy between host and device is counted, and so
is everything that makes the host wait for a number. Kernels run on the shim. The tables are in cupy_types.py, functions
in cupy_functions.py, devices in cupy_cuda.py.
"""

from __future__ import annotations

import math
import types
from collections.abc import Iterator
from typing import Any

import cupy_cuda
import cupy_orders
import cupy_types
import ml_dtypes
import numpy as np
from cupy_cuda import Current, Device, Memory, MemoryPointer, transfers

HALVES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def dtype_of(letter: str) -> np.dtype[Any]:
    return HALVES[1] if letter == "E" else np.dtype(letter)


class Flags:
    """There is neither `aligned` nor `writeable`."""

    def __init__(self, flags: Any) -> None:
        self.c_contiguous, self.f_contiguous, self.owndata = flags.c_contiguous, flags.f_contiguous, flags.owndata
        self.forc, self.fnc = flags.forc, flags.fnc

    def __getitem__(self, name: str) -> bool:
        return {"C_CONTIGUOUS": self.c_contiguous, "F_CONTIGUOUS": self.f_contiguous, "OWNDATA": self.owndata}[name]


class ndarray:
    """cupy.ndarray: `memory` is the NumPy array that holds the elements, which nothing but the shim may ask for."""

    __slots__ = ("__weakref__", "base", "device", "memory")
    __array_priority__ = 100
    __module__ = "cupy"

    def __init__(self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: str = "C"):
        self.device = Device()
        self.base = None
        if memptr is None:
            assert strides is None
            self.memory = np.empty(shape, dtype, order)  # type: ignore[call-overload]
            poison(self.memory)
            cupy_cuda.pool.took(self.memory)
        elif strides is not None:  # a dense array in another order of its axes
            content = memptr.mem.content
            self.memory = np.lib.stride_tricks.as_strided(content.reshape(-1).view(dtype), shape, strides)
            assert self.memory.nbytes == content.nbytes
            assert np.may_share_memory(self.memory, content)
        else:  # memory that other code has taken from the pool
            content = memptr.content
            if content.dtype == np.uint8 and content.ndim == 1:  # what follows in the memory belongs to other arrays
                content = content[: math.prod(shape) * np.dtype(dtype).itemsize]
            self.memory = content.view(dtype).reshape(shape)
            shares = np.may_share_memory(self.memory, content)
            assert shares or not self.memory.size, "CuPy would not look at steps here"

    # What it is

    dtype = property(lambda self: self.memory.dtype)
    shape = property(lambda self: self.memory.shape)
    ndim = property(lambda self: self.memory.ndim)
    size = property(lambda self: self.memory.size)
    itemsize = property(lambda self: self.memory.itemsize)
    nbytes = property(lambda self: self.memory.nbytes)
    strides = property(lambda self: self.memory.strides)
    flags = property(lambda self: Flags(self.memory.flags))
    _c_contiguous = property(lambda self: self.memory.flags.c_contiguous)
    data = property(lambda self: MemoryPointer(Memory.of(self.memory, self.device.id), 0))
    T = property(lambda self: view(self.memory.T, self))

    def __len__(self) -> int:
        return len(self.memory)

    # To the host

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> np.ndarray:
        assert (stream, out, blocking) == (None, None, True)
        if self.device != Device() and Current.streams[Current.index]:
            raise RuntimeError("get: the copy would run on a stream of another device, before the array is computed")
        transfers.to_host += 1
        return np.array(self.memory, order=order)  # type: ignore[call-overload]

    def item(self) -> Any:
        return self.get().item()

    def tolist(self) -> Any:
        return self.get().tolist()

    def __bool__(self) -> bool:
        return bool(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def __repr__(self) -> str:
        return repr(self.get())

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        transfers.streams.append(stream)
        if dl_device == (1, 0):
            transfers.to_host += 1
            return self.memory.copy().__dlpack__()
        if dl_device not in (None, self.__dlpack_device__()) or copy:
            raise BufferError("unsupported device requested.")
        if self.device != Device():
            raise RuntimeError("__dlpack__: the consumer would wait for a stream of another device")
        return self.memory.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device.id

    # Elements

    def __getitem__(self, index: Any) -> ndarray:
        place = indices_of(index)
        result = self.memory[place]
        parts = place if isinstance(place, tuple) else (place,)
        if any(isinstance(p, np.ndarray) for p in parts):
            if any(isinstance(p, np.ndarray) and p.dtype == bool for p in parts):
                transfers.to_host += 1  # how many are true?
            near("x[index]", self)
            return fresh(result, "take")
        return view(np.asarray(result) if not isinstance(result, np.generic) else self.memory[(*parts, ...)], self)

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, (list, tuple)):
            raise TypeError(f"Unsupported type {type(value)}")
        memory, place, given = near("x[index] = value", self), indices_of(index), content("x[index] = value", value)
        transfers.launches["copy"] += 1
        if isinstance(given, np.ndarray) and given.ndim:
            cupy_orders.note(np.asarray(memory[place]), given)
        with np.errstate(all="ignore"):
            if may_repeat(place):
                raced(memory, place, given)
            else:
                memory[place] = given

    def __iter__(self) -> Iterator[ndarray]:
        return (self[i] for i in range(len(self.memory)))

    def fill(self, value: Any) -> None:
        near("fill", self).fill(content("fill", value))
        transfers.launches["fill"] += 1

    # Copies and views

    def astype(
        self, dtype: Any, order: str = "K", casting: Any = None, subok: Any = None, copy: bool = True
    ) -> ndarray:
        if self.dtype == dtype and not copy:
            return self
        with np.errstate(all="ignore"):
            result = fresh(cupy_orders.laid(near("astype", self).astype(dtype), self.memory, order or "K"), order="K")
        cupy_orders.note(result.memory, self.memory)
        return result

    def copy(self, order: str = "C") -> ndarray:  # of any device, to the current one
        result = fresh(cupy_orders.laid(self.memory, self.memory, order), order="K")
        cupy_orders.note(result.memory, self.memory)
        return result

    def reshape(self, *shape: Any, order: str = "C") -> ndarray:
        return view(self.memory.reshape(*shape, order=order), self)  # type: ignore[call-overload]

    def ravel(self, order: str = "C") -> ndarray:
        return view(self.memory.ravel(order), self)  # type: ignore[arg-type]

    def flatten(self, order: str = "C") -> ndarray:
        return fresh(near("flatten", self).flatten(order))  # type: ignore[arg-type]

    def transpose(self, *axes: Any) -> ndarray:
        return view(self.memory.transpose(*axes), self)

    def swapaxes(self, axis1: int, axis2: int) -> ndarray:
        return view(self.memory.swapaxes(axis1, axis2), self)

    def squeeze(self, axis: Any = None) -> ndarray:
        return view(self.memory.squeeze(axis), self)

    def view(self, dtype: Any = None) -> ndarray:
        return view(self.memory.view(self.dtype if dtype is None else dtype), self)

    # Dispatch from NumPy

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        found = getattr(module, function.__name__, None)
        if found is None:
            return NotImplemented
        if "out" in options:
            (options["out"],) = options["out"]
        return (found if method == "__call__" else getattr(found, method))(*inputs, **options)

    def __array_function__(self, function: Any, kinds: Any, args: Any, options: Any) -> Any:
        found = getattr(module, function.__name__, None)
        if found is None or function.__module__ != "numpy":
            return NotImplemented
        return found(*args, **options)


def poison(memory: np.ndarray) -> None:
    """Fill memory with NaN in every float type, -1 in integers, to reveal a read before the first write."""
    if memory.size:
        memory.reshape(-1, order="A").view(np.uint8)[...] = 0xFF


def fresh(memory: Any, by: str = "copy", order: str = "C") -> ndarray:
    """Return an array with its own memory, on the current device, that the kernel `by` fills; "" if no kernel does.

    order: "C" lays it row by row, whatever NumPy has made; "K" leaves it as it is (cupy_orders.py).
    """
    if by:
        transfers.launches[by] += 1
    result = ndarray.__new__(ndarray)
    result.memory = np.array(memory, copy=None, order=order)  # type: ignore[call-overload]
    if result.memory.base is not None or not result.memory.flags.writeable:
        result.memory = cupy_orders.laid(result.memory, result.memory, order)
    result.device, result.base = Device(), None
    cupy_cuda.pool.took(result.memory)
    return result


def view(memory: np.ndarray, of: ndarray) -> ndarray:
    """Return an array around another's memory; a copy if the memory is no longer shared."""
    if not np.may_share_memory(memory, of.memory) and memory.size:
        near("copy", of)
        cupy_orders.turned.append(of.shape)  # the only reason why reshape() copies, but for gaps
        return fresh(memory)
    result = ndarray.__new__(ndarray)
    result.memory, result.device = memory, of.device
    result.base = of if of.base is None else of.base
    return result


def near(name: str, array: ndarray) -> np.ndarray:
    """Return the memory of an array on the current device; CuPy reads another device's slowly, if at all."""
    if array.device != Device():
        raise RuntimeError(f"{name}: the array is on {array.device}, the current device is {Device()}")
    return array.memory


def content(name: str, value: Any) -> Any:
    """The NumPy side of an argument; TypeError for NumPy arrays, which CuPy never copies by itself."""
    if isinstance(value, ndarray):
        return near(name, value)
    if isinstance(value, (list, tuple)):
        return type(value)(content(name, item) for item in value)
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)} in {name}")
    return value


def indices_of(index: Any) -> Any:
    """An index with the memory of CuPy arrays; lists and NumPy arrays are copied to the device."""
    if isinstance(index, tuple):
        return tuple(indices_of(part) for part in index)
    if isinstance(index, ndarray):
        return index.memory
    if isinstance(index, (list, np.ndarray)):
        transfers.to_device += 1
        return np.asarray(index)
    return index


def may_repeat(place: Any) -> bool:
    """Are there integers in arrays, which may name an element twice?"""
    parts = place if isinstance(place, tuple) else (place,)
    return any(isinstance(part, np.ndarray) and part.dtype.kind in "iu" for part in parts)


threads = np.random.default_rng(0)  # the order in which the threads of a race come, another one each time


def raced(memory: np.ndarray, place: Any, given: Any) -> None:
    """memory[place] = given, in no order: if several values go to one element, any may be the last."""
    places = np.arange(memory.size).reshape(memory.shape)[place]
    order = threads.permutation(places.size)
    where = np.unravel_index(places.reshape(-1)[order], memory.shape)
    given = np.asarray(given)
    while given.ndim > places.ndim and len(given) == 1:  # CuPy takes these axes off
        given = given[0]
    memory[where] = np.broadcast_to(given, places.shape).reshape(-1)[order]


def kind_of(dtype: np.dtype[Any]) -> int:
    return 0 if dtype.kind == "b" else 1 if dtype.kind in "iu" else 2 if dtype.kind == "f" else 3


class Ufunc:
    """A function of elements with CuPy's loops."""

    def __init__(self, name: str, function: Any, text: str) -> None:
        self.__name__, self.function = name, function
        self.loops = cupy_types.loops(text)
        self.nin = len(self.loops[0][0])
        self.types = ["->".join(loop) for loop in self.loops]

    def __call__(self, *args: Any, out: Any = None, dtype: Any = None, casting: str = "same_kind") -> Any:
        if len(args) != self.nin:
            raise TypeError(f"Wrong number of arguments for {self.__name__!r}: {len(args)}, expected {self.nin}")
        values = [content(self.__name__, a) for a in args]
        for value in values:
            if not isinstance(value, (np.ndarray, np.generic, bool, int, float)):
                raise TypeError(f"Unsupported type {type(value)} in {self.__name__}")
        taken, given = self.loop(values, dtype)
        with np.errstate(all="ignore"):
            result = self.function(*[np.asarray(v).astype(t, copy=False) for v, t in zip(values, taken, strict=True)])
            result = np.asarray(result).astype(given, copy=False)
        if out is None:
            found = fresh(result, self.__name__)
            cupy_orders.note(found.memory, *values)
            return found
        cupy_orders.note(out.memory, *values)
        transfers.launches[self.__name__] += 1
        if not np.can_cast(given, out.dtype, casting):  # type: ignore[arg-type]
            raise TypeError(f"output (typecode '{given}') could not be coerced to '{out.dtype}' in {self.__name__}")
        if np.broadcast_shapes(result.shape, out.shape) != out.shape:
            raise ValueError(f"Out shape is mismatched in {self.__name__}")
        out.memory[...] = result
        return out

    def loop(self, values: list[Any], dtype: Any) -> tuple[list[np.dtype[Any]], np.dtype[Any]]:
        """The first loop that all values can be cast to; a Python number bends to any type of its kind or higher."""
        kinds = [np.asarray(v).dtype for v in values]
        weak = [type(v) if isinstance(v, (bool, int, float)) and not hasattr(v, "dtype") else None for v in values]
        arrays = [kind_of(t) for t, w in zip(kinds, weak, strict=True) if w is None]
        numbers = [kind_of(t) for t, w in zip(kinds, weak, strict=True) if w is not None]
        if not arrays or not numbers or max(arrays) < max(numbers):
            weak = [None] * len(values)
        for letters, result in self.loops:
            taken, given = [dtype_of(letter) for letter in letters], dtype_of(result)
            if dtype is not None:
                if given == dtype:
                    return taken, given
            elif all(
                np.can_cast(kind, t) or (w is not None and np.result_type(w(0), t) == t)
                for kind, w, t in zip(kinds, weak, taken, strict=True)
            ):
                return taken, given
        raise TypeError(f"Wrong type ({dtype or [v.dtype for v in map(np.asarray, values)]}) for {self.__name__}")

    def at(self, a: ndarray, index: Any, b: Any = None) -> None:
        kinds = {"add": "iIlLqQefd", "maximum": "iIlLqQfd", "minimum": "iIlLqQfd"}.get(self.__name__, "")
        if a.dtype.char not in kinds:
            raise TypeError(f"cupy.{self.__name__}.at has no {a.dtype}")
        transfers.atomics += a.dtype.kind == "f"  # sums in another order each time
        self.function.at(near("at", a), indices_of(index), content("at", b))

    def reduce(self, array: ndarray, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        if self.__name__ not in ("add", "multiply"):
            raise NotImplementedError(f"`cupy_{self.__name__}.reduce` is not supported yet")
        return Reduction("sum" if self.__name__ == "add" else "prod")(array, axis, dtype, out, keepdims)


class Reduction:
    """A reduction over some axes, in CuPy's types; 16-bit floats are added up in float32."""

    def __init__(self, name: str) -> None:
        self.name, self.loops = name, cupy_types.loops(cupy_types.REDUCTIONS[name])

    def __call__(self, a: ndarray, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        assert out is None
        given = None if dtype is None else np.dtype(dtype)
        if given is None:
            given = next(dtype_of(result) for taken, result in self.loops if np.can_cast(a.dtype, dtype_of(taken)))
        compute = np.dtype(np.float32) if given in HALVES else given
        with np.errstate(all="ignore"):
            result = getattr(np, self.name)(
                near(self.name, a).astype(compute, copy=False), axis=axis, keepdims=keepdims
            )
        return fresh(np.asarray(result).astype(given), self.name)


module = types.ModuleType("cupy")  # cupy_functions.py fills it
