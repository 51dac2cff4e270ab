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
        text = inspect.cleandoc(public.__doc__)
        if base is not None:
            name = public.__name__
            text += "\n\n" + inspect.cleandoc(base.__doc__ or "").replace("{name}", name).replace("{shape}", shape)
        head, example, rest = text.partition("\n\nExample:\n")
        texts = {**shared, **own}
        lines = [_entry(*found, texts[found[0]]) for found in _arguments(public)]
        section = ["", "Args:", *lines] if lines else []
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


def _arguments(public: Callable[..., Any]) -> Iterator[tuple[str, Any, Any, str]]:
    """Name, type, default and stars of each argument but self; `empty` where there is no type or default.

    Of a function they are read out of its code: inspect takes ten times as long, and `import minorm` should be quick.
    """
    function: Any = inspect.unwrap(public.__init__ if inspect.isclass(public) else public)  # type: ignore[misc]
    code, defaults, types = function.__code__, function.__defaults__ or (), function.__annotations__
    names, count, stop = code.co_varnames, code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    given = {
        **dict(zip(names[count - len(defaults) : count], defaults, strict=True)),
        **(function.__kwdefaults__ or {}),
    }
    starred = bool(code.co_flags & inspect.CO_VARARGS)
    order = [(name, "") for name in names[:count]]
    order += [(names[stop], "*")] if starred else []
    order += [(name, "") for name in names[count:stop]]
    order += [(names[stop + starred], "**")] if code.co_flags & inspect.CO_VARKEYWORDS else []
    for name, stars in order:
        if name not in ("self", "cls"):
            kind = types.get(name, inspect.Parameter.empty)
            yield name, _spelled(kind, function.__globals__), given.get(name, inspect.Parameter.empty), stars


def _spelled(kind: Any, names: Mapping[str, Any]) -> Any:
    """A type as help() should show it: an alias of ours, as `IntOrInts`, by what it stands for."""
    if not isinstance(kind, str):
        return kind
    found = [(word, names.get(word)) for word in kind.split(" | ")]
    return " | ".join(str(alias) if isinstance(alias, UnionType) else word for word, alias in found)


def _entry(name: str, kind: Any, default: Any, stars: str, text: str) -> str:
    """`    eps (float, default 1e-05): added to the variance`"""
    about = [] if kind in ("Any", inspect.Parameter.empty) else [str(kind)]
    if default is not inspect.Parameter.empty:
        about.append(f"default {getattr(default, '__name__', repr(default))}")
    described = f" ({', '.join(about)})" if about else ""
    start = f"    {stars}{name}{described}:"
    return f"{start} {text}" if len(start) + len(text) < WIDTH else f"{start}\n{_wrapped(text)}"


@functools.cache
def _wrapped(text: str) -> str:
    """The text on lines of its own: many functions share it, so it is wrapped once."""
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) > WIDTH - 9:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return "\n".join(f"        {line}" for line in lines)
