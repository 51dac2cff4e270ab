"""Docstrings in which every argument is described: what many functions share is written once.

    @documented(ARGUMENTS, size="how many neighbouring channels are summed over")
    def local_response_norm(x, size, alpha=1e-4): ...

`documented` puts a section `Args:` before the docstring's example: each argument of the signature, its type, its
default and its text. So a default is never out of date, and an argument without a text is an error of the import.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import UnionType
from typing import Any, TypeVar

WIDTH = 112  # of a line; help() indents by 4 or 8
Documented = TypeVar("Documented", bound=Callable[..., Any])
DocumentedClass = TypeVar("DocumentedClass", bound=type)


def documented(
    shared: Mapping[str, str], /, *, base: Callable[..., Any] | None = None, shape: str = "", **own: str
) -> Callable[[Documented], Documented]:
    """Decorate a public function or class so that its docstring describes each argument, by `own` or by `shared`.

    base: a class or function whose docstring goes on where this one ends, for those that differ in the shape of x
    alone; `{name}` stands there for the name of this one, and `{shape}` for an example's shape of x.
    """

    def fill(public: Documented) -> Documented:
        if public.__doc__ is None:  # python -OO
            return public
        text = public.__doc__
        if base is not None:
            about = _dedented(base.__doc__ or "").replace("{name}", public.__name__).replace("{shape}", shape)
            text = f"{_dedented(text)}\n\n{about}"
        texts = {**shared, **own}
        entries = [_entry(*found, texts[found[0]]) for found in _arguments(public)]
        if entries or base is not None:
            head, example, rest = _dedented(text).partition("\n\nExample:\n")
            section = ["", "Args:", *entries] if entries else []
            public.__doc__ = "\n".join([head, *section]) + example + rest
        return public

    return fill


def documented_methods(shared: Mapping[str, str], /) -> Callable[[DocumentedClass], DocumentedClass]:
    """Decorate a class so that the docstring of each of its public methods describes each argument.

    shared: texts by the argument's name, or by `method.argument` where it means something else there.
    """

    def fill(cls: DocumentedClass) -> DocumentedClass:
        own: dict[str, dict[str, str]] = {}
        for key, text in shared.items():
            method, dot, argument = key.partition(".")
            if dot:
                own.setdefault(method, {})[argument] = text
        for name, found in vars(cls).items():
            public = inspect.isfunction(found) and found.__name__ == name and not name.startswith("_")
            if public and "\nArgs:\n" not in (found.__doc__ or ""):
                documented({**shared, **own.get(name, {})})(found)
        return cls

    return fill


# `import minorm` documents some hundred functions, so what is below takes few microseconds for each: arguments are read
# out of a function's code (inspect takes ten times as long), and what many functions share is put together once.

_NONE = inspect.Parameter.empty


def _dedented(text: str) -> str:
    """As inspect.cleandoc, for texts whose closing quotes stand on a line of their own."""
    body, newline, indent = text.rpartition("\n")
    if not newline or indent.strip():
        return inspect.cleandoc(text) if newline else text.strip()
    return body.replace(newline + indent, "\n").strip()


def _arguments(public: Callable[..., Any]) -> Iterator[tuple[str, Any, str | None, str]]:
    """Name, type, default and stars of each argument but self; `_NONE` where there is no type, None for no default."""
    function: Any = public.__init__ if isinstance(public, type) else public
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code, types, values = function.__code__, function.__annotations__, function.__defaults__ or ()
    names, count, stop = code.co_varnames, code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    defaults = dict(zip(names[count - len(values) : count], values, strict=True)) | (function.__kwdefaults__ or {})
    starred = bool(code.co_flags & inspect.CO_VARARGS)
    order = [(name, "") for name in names[:count]]
    order += [(names[stop], "*")] if starred else []
    order += [(name, "") for name in names[count:stop]]
    order += [(names[stop + starred], "**")] if code.co_flags & inspect.CO_VARKEYWORDS else []
    for name, stars in order:
        if name not in ("self", "cls"):
            kind, default = types.get(name, _NONE), defaults.get(name, _NONE)
            if kind not in _BUILT_IN:
                kind = _spelled(kind, function.__globals__)
            yield name, kind, None if default is _NONE else getattr(default, "__name__", repr(default)), stars


_BUILT_IN = {"Any", "Tensor", "Tensor | None", "bool", "float", "int", "str", "int | None", "float | None"}


def _spelled(kind: Any, names: Mapping[str, Any]) -> Any:
    """A type as help() should show it: an alias of ours, as `IntOrInts`, by what it stands for."""
    if not isinstance(kind, str):
        return kind
    found = [(word, names.get(word)) for word in kind.split(" | ")]
    return " | ".join(str(alias) if isinstance(alias, UnionType) else word for word, alias in found)


@functools.cache
def _entry(name: str, kind: Any, default: str | None, stars: str, text: str) -> str:
    """`    eps (float, default 1e-05): added to the variance`"""
    about = [] if kind in ("Any", _NONE) else [str(kind)]
    if default is not None:
        about.append(f"default {default}")
    described = f" ({', '.join(about)})" if about else ""
    start = f"    {stars}{name}{described}:"
    if len(start) + len(text) < WIDTH:
        return f"{start} {text}"
    lines = [start]
    while len(text) > WIDTH - 8 and (end := text.rfind(" ", 0, WIDTH - 7)) > 0:
        lines.append(f"        {text[:end]}")
        text = text[end + 1 :]
    return "\n".join([*lines, f"        {text}"])
