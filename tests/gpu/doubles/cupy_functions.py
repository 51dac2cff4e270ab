"""The functions of the double of cupy, the module itself, and how it takes CuPy's place.

    with installed() as cupy:
        x = minorm.ones(3).to("cuda")        # x.array is a cupy.ndarray
        assert cupy.transfers.to_device == 1

Names that minorm does not use are missing, and using them shows.
"""

from __future__ import annotations

import ctypes
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import cublas_double
import cublas_lt_double
import cupy_cuda
import cupy_graphs
import cupy_orders
import cupy_types
import numpy as np
import shim
from cupy_cuda import Current, Device, transfers
from cupy_double import Reduction, Ufunc, content, fresh, indices_of, module, ndarray, near, poison, raced, view

from minorm import devices
from minorm.devices import driver
from minorm.kernels import select

Array = Any


def signature_of(text: str) -> inspect.Signature:
    plain = re.sub("<class '([a-z]+)'>", r"\1", text)
    return inspect.signature(eval(f"lambda {plain}: 0"))


def function(name: str, run: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """CuPy's function of that name, with CuPy's arguments and no others: `run`, or NumPy's on the arrays' memory."""
    signature = signature_of(cupy_types.SIGNATURES[name])

    def call(*args: Any, **options: Any) -> Any:
        signature.bind(*args, **options)
        if run is not None:
            return run(*args, **options)
        given = [*args, *options.values()]
        arrays = [a for g in given for a in (g if isinstance(g, (list, tuple)) else [g]) if isinstance(a, ndarray)]
        first = arrays[0] if arrays else None
        values = [first.memory if first is a and name in VIEWS else content(name, a) for a in args]
        named = {key: content(name, value) for key, value in options.items()}
        with np.errstate(all="ignore"):
            result = getattr(np, name)(*values, **named)
        if isinstance(result, (list, tuple)):
            return type(result)(wrapped(r, arrays, name) for r in result)
        if result is None or first is None:
            return None if result is None else fresh(result, name)
        order = cupy_orders.of(name, [first.memory, *values[1:]], named)
        return wrapped(result, arrays, name, first.memory, order)

    call.__name__ = name
    return call


def wrapped(result: Any, arrays: list[Array], by: str, first: Any = None, order: str = "C") -> Array:
    """The array of a result: a view where it shares memory with an argument. order: "K" is that of `first`."""
    for array in arrays:
        if isinstance(result, np.ndarray) and np.may_share_memory(result, array.memory):
            return view(result, array)
    return fresh(result, by) if order == "C" else fresh(cupy_orders.laid(result, first, order), by, "K")


def asarray(a: Any, dtype: Any = None, order: Any = None, *, blocking: bool = False) -> Array:
    if isinstance(a, ndarray):
        return a if dtype is None else a.astype(dtype, copy=False)
    return array(a, dtype, order=order or "K")


def array(obj: Any, dtype: Any = None, copy: Any = True, order: str = "K") -> Array:
    if isinstance(obj, ndarray):
        return obj.astype(obj.dtype if dtype is None else dtype, copy=bool(copy))
    transfers.to_device += 1
    if order in "AK":  # of the host's orders CuPy knows two
        order = "F" if isinstance(obj, np.ndarray) and obj.flags.fnc else "C"
    return fresh(np.array(obj, dtype, order=order), "", "K")  # type: ignore[call-overload]


def asnumpy(a: Any) -> np.ndarray:
    return a.get() if isinstance(a, ndarray) else np.asarray(a)


def from_dlpack(array: Any, device: Any = None, copy: Any = None) -> Array:
    kind, index = array.__dlpack_device__()
    if kind != 2:
        raise TypeError("CPU arrays cannot be directly imported to CuPy. Use `cupy.array(numpy.from_dlpack(input))`.")
    with Device(index):
        stream = Current.streams[Current.index] or 1  # 1 is the default stream
        capsule = array.__dlpack__(stream=stream, max_version=(1, 0), copy=copy)
    memory = np.from_dlpack(_Capsule(capsule))
    result = ndarray.__new__(ndarray)
    result.memory, result.device, result.base = memory, Device(index), None
    return result


class _Capsule:
    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def _where(condition: Array, x: Any = None, y: Any = None) -> Any:
    if x is None:
        return _nonzero(condition)
    return _where_loops(condition.astype(bool, copy=False), x, y)


def _diagonal(a: Array, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """A view that can be written to, as CuPy's can."""
    found = np.diagonal(a.memory, offset, axis1, axis2)
    found.flags.writeable = True
    return view(found, a)


def _clip(a: Array, a_min: Any, a_max: Any, out: Any = None) -> Array:
    if a.dtype.kind in "iuf":  # not bfloat16
        low, high = (-np.inf, np.inf) if a.dtype.kind == "f" else (np.iinfo(a.dtype).min, np.iinfo(a.dtype).max)
        a_min = a.dtype.type(low) if a_min is None else a_min
        a_max = a.dtype.type(high) if a_max is None else a_max
    return _clip_loops(a, a_min, a_max, out=out)


def _extreme(name: str) -> Callable[..., Array]:
    def run(a: Array, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Array:
        assert (dtype, out) == (None, None)
        return fresh(getattr(np, name)(near(name, a), axis=axis, keepdims=keepdims), name)

    return run


def _argsort(a: Array, axis: int = -1, kind: Any = None) -> Array:
    """Sort the indices; along any axis but the last the result is a view, as CuPy moves that axis to the end to
    sort."""
    _check_sorted(a, kind)
    memory = near("argsort", a)
    if axis in (None, -1, memory.ndim - 1):
        return fresh(np.argsort(memory, axis, kind="stable"), "sort")
    found = fresh(np.argsort(np.moveaxis(memory, axis, -1), -1, kind="stable"), "sort")
    return view(np.moveaxis(found.memory, -1, axis), found)


def _sort(a: Array, axis: int = -1, kind: Any = None) -> Array:
    _check_sorted(a, kind)
    return fresh(np.sort(near("sort", a), axis, kind="stable"), "sort")


def _check_sorted(a: Array, kind: Any) -> None:
    if kind not in (None, "stable"):
        raise ValueError(f"kind is {kind}; CuPy knows 'stable' alone")
    if a.dtype.char not in "?bBhHiIlLqQefd":
        raise NotImplementedError(f"Sorting arrays with dtype '{a.dtype}' is not supported")


def _running(name: str) -> Callable[..., Array]:
    def run(a: Array, axis: Any = None, dtype: Any = None, out: Any = None) -> Array:
        assert out is None
        if np.dtype(dtype or a.dtype).char == "E":
            raise TypeError(f"cupy.{name} has no bfloat16")
        order = cupy_orders.of(name, [a.memory, axis], {})
        return wrapped(getattr(np, name)(near(name, a), axis, dtype), [], name, a.memory, order)

    return run


def _nonzero(a: Array) -> tuple[Array, ...]:
    found = _argwhere(a)
    return tuple(view(found.memory[:, axis], found) for axis in range(found.shape[1]))  # columns


def _argwhere(a: Array) -> Array:
    transfers.to_host += 1
    return fresh(np.argwhere(near("argwhere", a)), "nonzero")


def _put_along_axis(arr: Array, indices: Array, values: Any, axis: int) -> None:
    memory, place = near("put_along_axis", arr), indices_of(indices)
    where: list[Any] = list(np.indices(place.shape, sparse=True))
    where[axis] = place
    transfers.launches["put_along_axis"] += 1
    raced(memory, tuple(where), content("put_along_axis", values))


def _bincount(x: Array, weights: Any = None, minlength: Any = None) -> Array:
    transfers.to_host += 1  # which is the largest?
    transfers.atomics += weights is not None  # of float64
    given = None if weights is None else near("bincount", weights)
    return fresh(np.bincount(near("bincount", x), given, minlength or 0), "bincount")


def _unique(
    ar: Array,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: Any = None,
    *,
    equal_nan: bool = True,
) -> Any:
    _check_sorted(ar, None)
    transfers.to_host += 1  # how many are there?
    found = np.unique(near("unique", ar), return_index, return_inverse, return_counts, axis, equal_nan=equal_nan)
    return tuple(fresh(part, "unique") for part in found) if isinstance(found, tuple) else fresh(found, "unique")


def _created(name: str) -> Callable[..., Array]:
    def run(*args: Any, **options: Any) -> Array:
        return fresh(getattr(np, name)(*[content(name, a) for a in args], **options), name, "K")

    return run


def _like(name: str) -> Callable[..., Array]:
    made = getattr(np, name)

    def run(a: Array, *given: Any, dtype: Any = None, order: str = "K", subok: Any = None, shape: Any = None) -> Array:
        if not isinstance(a, ndarray):
            raise TypeError(f"{name}: {type(a)} is no array of CuPy")
        value = [content(name, given[0])] if name == "full_like" else []
        kind = given[len(value)] if len(given) > len(value) else dtype
        shape = shape or a.shape  # as CuPy has it: () counts as None
        memory = cupy_orders.like(a.memory, kind, order, shape)
        memory[...] = made(a.memory, *value, kind, shape=shape)
        result = fresh(memory, "" if name == "empty_like" else name, "K")
        if name == "empty_like":
            poison(result.memory)
        return result

    return run


def _matmul(a: Array, b: Array, out: Any = None) -> Array:
    assert out is None
    x, y = (content("matmul", v) for v in (a, b))
    if x.ndim == 0 or y.ndim == 0:
        raise ValueError("matmul: Scalar operands are not allowed, use '*' instead")
    kind = np.promote_types(x.dtype, y.dtype)
    compute = np.float32 if kind.itemsize == 2 else kind
    return fresh(np.asarray(x.astype(compute) @ y.astype(compute)).astype(kind), "matmul")


_where_loops = Ufunc("where", np.where, cupy_types.WHERE)
_clip_loops = Ufunc("clip", np.clip, cupy_types.CLIP)

SPECIAL: dict[str, Callable[..., Any]] = {
    **{name: _created(name) for name in ("zeros", "ones", "full", "eye", "arange", "linspace", "indices")},
    **{name: _like(name) for name in ("empty_like", "zeros_like", "ones_like", "full_like")},
    **{name: _running(name) for name in ("cumsum", "cumprod")},
    **{name: Reduction(name) for name in cupy_types.REDUCTIONS},
    "amax": Reduction("max"),
    "amin": Reduction("min"),
    "argmax": _extreme("argmax"),
    "argmin": _extreme("argmin"),
    "argsort": _argsort,
    "argwhere": _argwhere,
    "bincount": _bincount,
    "clip": _clip,
    "diagonal": _diagonal,
    "empty": ndarray,
    "may_share_memory": lambda a, b, max_work=None: bool(np.may_share_memory(a.memory, b.memory)),
    "nonzero": _nonzero,
    "unique": _unique,
    "put_along_axis": _put_along_axis,
    "sort": _sort,
    "where": _where,
}
VIEWS = ("broadcast_to", "expand_dims", "moveaxis", "reshape", "squeeze", "swapaxes", "transpose", "split")
METHODS = [  # x.f(...) is f(x, ...)
    "all", "any", "argmax", "argmin", "argsort", "clip", "cumprod", "cumsum", "dot", "max", "mean", "min", "nonzero",
    "prod", "repeat", "sum", "take",
]  # fmt: skip
OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "power", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
}  # fmt: skip
COMPARISONS = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
}  # fmt: skip


def _binary(function: Any, swapped: bool = False) -> Callable[[Array, Any], Array]:
    def run(self: Array, other: Any) -> Array:
        if getattr(other, "__array_ufunc__", self) is None:
            return NotImplemented
        return function(other, self) if swapped else function(self, other)

    return run


def _in_place(function: Any) -> Callable[[Array, Any], Array]:
    return lambda self, other: function(self, other, out=self)


def _fill() -> None:
    for name, text in cupy_types.UFUNCS.items():
        setattr(module, name, Ufunc(name, getattr(np, name), text))
    for alias, name in cupy_types.ALIASES.items():
        setattr(module, alias, getattr(module, name))
    for name in cupy_types.SIGNATURES:
        run = function(name, SPECIAL.get(name))
        computes = name not in (*VIEWS, "empty", "empty_like")
        setattr(module, name, cupy_graphs.recorded(run, Current) if computes else run)
    for item in (asarray, array, asnumpy, from_dlpack, ndarray):
        setattr(module, item.__name__, item)
    module.__dict__.update(
        matmul=cupy_graphs.recorded(_matmul, Current),
        cuda=cupy_cuda.submodule(),
        RawModule=shim.Module,
        get_default_memory_pool=lambda: cupy_cuda.pool,
        transfers=transfers,
        newaxis=None,
        __version__="14.2.0",
    )
    for name in METHODS:
        setattr(ndarray, name, _method(getattr(module, name)))
    for short, name in OPERATORS.items():
        setattr(ndarray, f"__{short}__", _binary(getattr(module, name)))
        setattr(ndarray, f"__r{short}__", _binary(getattr(module, name), swapped=True))
        if short != "matmul":
            setattr(ndarray, f"__i{short}__", _in_place(getattr(module, name)))
    for short, name in COMPARISONS.items():
        setattr(ndarray, f"__{short}__", _binary(getattr(module, name)))
    for short, name in {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}.items():
        setattr(ndarray, f"__{short}__", _method(getattr(module, name)))


def _method(function: Any) -> Callable[..., Any]:
    return lambda self, *args, **options: function(self, *args, **options)  # noqa: PLW0108  only functions bind to self


WRITTEN_DOWN: list[tuple[Any, tuple[str, ...]]] = [  # by a capture: by class, the methods that compute
    (Ufunc, ("__call__", "at", "reduce")),
    (Reduction, ("__call__",)),
    (shim.Function, ("__call__",)),
    (ndarray, ("__getitem__", "__setitem__", "fill", "astype", "copy", "reshape", "ravel", "flatten", "view")),
]


for _kind, _names in WRITTEN_DOWN:
    for _name in _names:
        setattr(_kind, _name, cupy_graphs.recorded(getattr(_kind, _name), Current))
_fill()

_gpu: dict[str, Any] = {}  # minorm.kernels.gpu and its modules, imported with the double; kept, kernels and all


@contextmanager
def installed() -> Iterator[Any]:
    """The double in the place of cupy, and minorm as it is on a machine with two GPUs."""
    parent = sys.modules["minorm.kernels"]
    theirs = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith("minorm.kernels.gpu")}
    before = sys.modules.get("cupy"), dict(select._backends), list(devices._found), parent.__dict__.pop("gpu", None)
    version, driver.version = driver.version, lambda: 12080
    sys.modules["cupy"] = module
    sys.modules.update(_gpu)
    if "minorm.kernels.gpu" in _gpu:
        parent.gpu = _gpu["minorm.kernels.gpu"]  # type: ignore[attr-defined]
    devices._found.clear()
    transfers.clear()
    ours = {"libcublas": cublas_double.Library, "libcublasLt": cublas_lt_double.LtLibrary}
    load, ctypes.CDLL = (
        ctypes.CDLL,
        lambda name, *more, **options: (  # type: ignore[misc, assignment]
            ours.get(str(name).partition(".")[0]) or load(name, *more, **options)
        ),
    )
    cupy_cuda.Current.index = 0
    cupy_cuda.Current.streams.update({0: 0, 1: 0})
    cupy_cuda.Current.allocator = None
    try:
        yield module
    finally:
        ctypes.CDLL = load  # type: ignore[misc]
        driver.version = version
        for name in list(sys.modules):
            if name.startswith("minorm.kernels.gpu"):
                _gpu[name] = sys.modules.pop(name)
        parent.__dict__.pop("gpu", None)
        sys.modules.update(theirs)
        cupy, backends, found, gpu = before
        if gpu is not None:
            parent.gpu = gpu  # type: ignore[attr-defined]
        select._backends.clear()
        select._backends.update(backends)
        devices._found[:] = found
        if cupy is None:
            del sys.modules["cupy"]
        else:
            sys.modules["cupy"] = cupy
