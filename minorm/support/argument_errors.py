"""Explains two mistakes in calls: an argument that the function does not have, and an array of another library.

Functions look for these mistakes only after a call has failed, so a correct call takes no extra time. A class cannot
catch an error that `__init__` raises. So a class compares the names before it makes an object, which takes half a
microsecond.
"""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, TypeVar

AnyCallable = TypeVar("AnyCallable", bound=Callable[..., Any])
AnyClass = TypeVar("AnyClass", bound=type)
Self = TypeVar("Self", bound="Checked")

# A call that does not fit the signature


def signature(public: Callable[..., Any]) -> inspect.Signature:
    """Return `inspect.signature(public)`; for a class, the signature of its `__init__` without self.

    Early releases of Python 3.11 (Debian 12 has 3.11.2) would use `__new__` of a base class, and `Checked.__new__`
    accepts any arguments.
    """
    init: Any = getattr(public, "__init__", None)
    if not isinstance(public, type) or init is object.__init__:
        return inspect.signature(public)
    found = inspect.signature(init)
    return found.replace(parameters=list(found.parameters.values())[1:])


def unbound(function: Any) -> tuple[Any, int]:
    """Return the function in a `functools.partial`, and the number of positional arguments that the partial gives.

    If `function` is not a partial, return (function, 0).
    """
    partial = isinstance(function, functools.partial)
    return (function.func, len(function.args)) if partial else (function, 0)


def wrong_call(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> TypeError | None:
    """Return a TypeError that says what is wrong with `function(*args, **kwargs)`; None if the arguments fit.

    Only the signature is tested, so a TypeError that `function` itself raised is not mistaken for a wrong call.
    """
    expected = signature(function)
    try:
        expected.bind(*args, **kwargs)
    except TypeError as error:
        reason = str(error)
    else:
        return None
    accepted = [p for p in expected.parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    names = [p.name for p in accepted]
    unknown = next((key for key in kwargs if key not in names), None)
    if unknown is None or any(p.kind is p.VAR_KEYWORD for p in expected.parameters.values()):
        return TypeError(f"{name}: {reason}; expected {name}{_shown(expected)}")
    import difflib  # only a mistake needs it, and `import minorm` should be quick

    near = [THEIRS[unknown]] if THEIRS.get(unknown) in names else []
    near = near or [name for name in names if name.startswith(unknown)] or difflib.get_close_matches(unknown, names, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"expected {name}{_shown(expected)}"
    return TypeError(f"{name}: there is no argument {unknown!r}; {hint}")


# Keras' names of arguments, with PyTorch's and minorm's
THEIRS = {"learning_rate": "lr", "filters": "out_channels", "units": "out_features", "strides": "stride",
          "rate": "p", "epsilon": "eps", "decay": "weight_decay"}  # fmt: skip


def _shown(signature: inspect.Signature) -> str:
    """Return the parameters and their defaults as text, without types."""
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))


def checked(function: AnyCallable) -> AnyCallable:
    """Decorate a public function, so that the error for a wrong argument suggests the right argument."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError:
            if error := wrong_call(function.__name__, function, args, kwargs):
                raise error from None
            raise

    return run  # type: ignore[return-value]


# PyTorch's arguments for the place and order of memory, which do not affect numbers.
MEMORY = {"pin_memory", "layout", "memory_format"}


def making(function: AnyCallable) -> AnyCallable:
    """Apply `checked` to a function that makes a Tensor, and accept some more calls in PyTorch's form.

    Arguments in MEMORY are ignored, unless the function has a parameter with this name. If the function takes the
    lengths of the axes as separate arguments, such as (2, 3), it also accepts size=(2, 3).
    """
    strict = checked(function)
    code = function.__code__
    ignored = MEMORY.difference(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    starred = bool(function.__code__.co_flags & inspect.CO_VARARGS)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            kwargs = {key: value for key, value in kwargs.items() if key not in ignored}
            if starred and not args and "size" in kwargs:
                args = (kwargs.pop("size"),)
        return strict(*args, **kwargs)

    return run  # type: ignore[return-value]


# NumPy's names of arguments, which PyTorch accepts too
NUMPYS = {"axis": "dim", "keepdims": "keepdim"}


def numpys(function: AnyCallable) -> AnyCallable:
    """Decorate a function with arguments dim and keepdim, so that it also accepts NumPy's names axis and keepdims."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        for word, ours in NUMPYS.items() if kwargs else ():
            if word in kwargs and ours not in kwargs:
                kwargs[ours] = kwargs.pop(word)
        return function(*args, **kwargs)

    return run  # type: ignore[return-value]


def numpys_methods(cls: AnyClass) -> AnyClass:
    """Decorate a class, so that all its methods with dim or keepdim, also inherited ones, accept NumPy's names."""
    for name in dir(cls):
        method = getattr(cls, name)
        code = getattr(inspect.unwrap(method), "__code__", None) if inspect.isfunction(method) else None
        if code and set(NUMPYS.values()) & set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]):
            setattr(cls, name, numpys(method))
    return cls


class Checked:
    """Base of the public classes: the error for a wrong argument names the class and suggests the right argument."""

    __slots__ = ()

    def __new__(cls: type[Self], *args: Any, **kwargs: Any) -> Self:
        """Check that the arguments fit `__init__`, and make an object; copying an object passes no arguments."""
        cls._check_call(args)
        doubtful = (args or kwargs) and not _surely_fits(cls.__init__, args, kwargs)
        if doubtful and (error := wrong_call(cls.__name__, cls, args, kwargs)):
            raise error
        return super().__new__(cls)

    @classmethod
    def _check_call(cls, args: tuple[Any, ...]) -> None:
        """A check that a subclass may define: raise TypeError if the arguments are meant for something else."""


def _surely_fits(init: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True if the arguments surely fit `__init__`; otherwise inspect must decide, which is ten times slower."""
    code = getattr(init, "__code__", None)
    if code is None:
        return False
    if code.co_flags & inspect.CO_VARKEYWORDS:
        return True
    given, positional = 1 + len(args), code.co_argcount  # self is one of them
    needed = positional - len(init.__defaults__ or ())
    if given > positional and not code.co_flags & inspect.CO_VARARGS:
        return False
    if not kwargs:
        return needed <= given
    names = code.co_varnames
    known = names[given : positional + code.co_kwonlyargcount]
    return kwargs.keys() <= set(known) and kwargs.keys() >= set(names[given:needed])


def named_arguments(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `function(*args, **kwargs)` by name, with defaults filled in."""
    bound = signature_of(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


_signatures: weakref.WeakKeyDictionary[Callable[..., Any], inspect.Signature] = weakref.WeakKeyDictionary()


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return the function's signature, from a cache, because a trace needs the signature for every call."""
    found = _signatures.get(function) if isinstance(function, FunctionType) else inspect.signature(function)
    if found is None:
        found = _signatures[function] = inspect.signature(function)
    return found


def outside() -> int:
    """Return the stacklevel for a warning: the level of the first frame outside minorm."""
    frame: Any = sys._getframe(1)
    level = 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("minorm."):
        frame, level = frame.f_back, level + 1
    return level


def called_within(*passed: str) -> bool:
    """Return whether the caller is in minorm; the caller is the first frame that is not in a module of `passed`."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(passed):
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__", "").startswith("minorm.")


def split_flags(operation: str, values: tuple[Any, ...], *flags: str) -> tuple[tuple[Any, ...], tuple[bool, ...]]:
    """Return the values before the first bool, and the bools for `flags`; raise TypeError if they do not fit."""
    count = next((i for i, value in enumerate(values) if type(value) is bool), len(values))
    given = values[count:]
    if not count or len(given) > len(flags) or not all(type(flag) is bool for flag in given):
        raise TypeError(
            f"{operation}: the arguments are {', '.join(map(repr, values))}; expected a device, a type or a Tensor, "
            f"then bools for {' and '.join(flags)}"
        )
    return values[:count], given


# An array of another library


def kind_of(value: Any) -> str:
    """Return the name of a value's type, such as `int`.

    For an array of another library, the name includes the module, such as `torch.Tensor`.
    """
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}" if is_foreign(value) else kind.__name__


def is_foreign(value: Any) -> bool:
    """Return whether the value is an array of another library, such as PyTorch, JAX, TensorFlow or CuPy.

    Arrays of NumPy and Tensors of minorm are not arrays of another library here.
    """
    kind = type(value)
    if is_tensor(value) or any(base.__module__ == "numpy" for base in kind.__mro__):
        return False
    return hasattr(kind, "__dlpack__") or hasattr(kind, "__array__")


def conversion(name: str, value: Any) -> str:
    """Return advice on how to make a Tensor from `value`, or on where to find the intended Tensor.

    `name` is the name of the value.
    """
    if not is_foreign(value):
        return _nearest_tensor(name, value) or "make one with minorm.tensor(data)"
    source = f"{name}.detach()" if getattr(value, "requires_grad", False) else name
    copied = f"{source}.numpy()" if hasattr(value, "numpy") else f"numpy.asarray({source})"
    shared = f"minorm.from_dlpack({source}) shares the memory, " if hasattr(value, "__dlpack__") else ""
    return f"convert it: {shared}minorm.tensor({copied}) makes a copy"


def is_tensor(value: Any) -> bool:
    """Return whether the value has a Tensor's method `from_array`, since this module cannot import the class."""
    return hasattr(type(value), "from_array")


def _nearest_tensor(name: str, value: Any) -> str:
    """Return advice on where to find the intended Tensor; "" if a Tensor can be made from `value`."""
    if value is None:
        return "if a `forward` computed the value, that `forward` must return its result"
    if callable(value) and hasattr(value, "state_dict"):
        return "pass the result of the model: model(x)"
    if hasattr(value, "dataset") and hasattr(value, "__iter__"):
        return "pass batches of the loader: for images, labels in loader: model(images)"
    if isinstance(value, (tuple, list)) and any(map(is_tensor, value)):
        return f"it has {len(value)} elements; unpack them, or pass one element: {name}[0]"
    return ""


def not_a_tensor(operation: str, name: str, value: Any) -> TypeError:
    """Return an error such as `conv2d: x is torch.Tensor; expected a Tensor of minorm; convert it: ...`"""
    expected = "a Tensor of minorm" if is_foreign(value) else "a Tensor"
    return TypeError(f"{operation}: {name} is {kind_of(value)}; expected {expected}; {conversion(name, value)}")


def foreign_argument(operation: str, named: dict[str, Any]) -> TypeError | None:
    """Return the error for the first argument that is, or contains, another library's array.

    Return None if there is no such argument.
    """
    for name, value in each_argument(named):
        if is_foreign(value):
            return not_a_tensor(operation, name, value)
    return None


def each_argument(named: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) for every argument, and for every item of tuples and lists, with names like `tensors[1]`."""
    for name, value in named.items():
        yield name, value
        if isinstance(value, (tuple, list)):
            yield from ((f"{name}[{i}]", item) for i, item in enumerate(value))
