"""Completes docstrings with a description of every argument, so that functions can share these descriptions.

    @documented(ARGUMENTS, size="how many neighbouring channels are summed over")
    def local_response_norm(x, size, alpha=1e-4): ...

`documented` puts a section `Args:` before the docstring's example. The section has each argument of the signature, with
its type, default and text. So a default is never out of date. A missing text raises an error: at once if it is a
function's argument, or, for a class, when the docstring is read.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from types import FunctionType, UnionType
from typing import Any, TypeVar

from minorm.support.argument_errors import unbound

WIDTH = 112  # of a line; help() indents by 4 or 8
Documented = TypeVar("Documented", bound=Callable[..., Any])
DocumentedClass = TypeVar("DocumentedClass", bound=type)


def documented(
    shared: Mapping[str, str],
    /,
    *,
    base: Callable[..., Any] | None = None,
    shape: str = "",
    words: Mapping[str, str] | None = None,
    **own: str,
) -> Callable[[Documented], Documented]:
    """Decorate a public function or class: add the arguments to its docstring, with texts of `own` or `shared`.

    base: a class or function whose docstring is appended, for functions that differ only in the axes of x. In the
    docstring of `base`, `{name}` is replaced by this function's name, `{shape}` by the shape of x in an example, and
    `{key}` by words["key"].
    """

    def fill(public: Documented) -> Documented:
        texts = _texts[public] = {**shared, **own} if own else shared
        text = public.__doc__
        if text is None:  # python -OO
            return public

        def complete() -> str:
            whole = text
            if base is not None:
                about = _dedented(base.__doc__ or "")
                for key, word in {"name": public.__name__, "shape": shape, **(words or {})}.items():
                    about = about.replace(f"{{{key}}}", word)
                whole = f"{_dedented(text)}\n\n" + "\n\n".join([_fitted(part) for part in about.split("\n\n")])
            entries = [_entry(*found, texts[found[0]]) for found in _arguments(public)]
            if not entries and base is None:
                return whole
            head, example, rest = _dedented(whole).partition("\n\nExample:\n")
            section = ["", "Args:", *entries] if entries else []
            return "\n".join([head, *section]) + example + rest

        public.__doc__ = _WhenRead(complete) if isinstance(public, type) else complete()  # type: ignore[assignment]
        return public

    return fill


class _WhenRead:
    """The docstring of a class, composed when it is first read, so that `import minorm` stays fast."""

    def __init__(self, complete: Callable[[], str]) -> None:
        self.complete, self.text = complete, ""

    def __get__(self, instance: object, owner: type | None = None) -> str:
        self.text = self.text or self.complete()
        return self.text


_texts: dict[Callable[..., Any], Mapping[str, str]] = {}


def arguments_of(function: Callable[..., Any]) -> dict[str, str]:
    """Return the texts of a documented function's arguments, for a layer that passes its arguments to the function."""
    return dict(_texts[function])


def introduced(words: str, docstring: str | None) -> str:
    """Return the docstring with `words` put before its first paragraph, which is wrapped again if it is too wide."""
    first, blank, rest = (docstring or "").partition("\n\n")
    return _fitted(words + " ".join(map(str.strip, first.split("\n")))) + blank + rest


def documented_methods(shared: Mapping[str, str], /) -> Callable[[DocumentedClass], DocumentedClass]:
    """Decorate a class, so that the docstrings of all its public methods describe each argument.

    shared: texts by the name of the argument, or by `method.argument` if the argument has another meaning in this
    method.
    """

    def fill(cls: DocumentedClass) -> DocumentedClass:
        if sys.flags.optimize > 1:  # python -OO
            return cls
        own: dict[str, dict[str, str]] = {}
        for key, text in shared.items():
            method, dot, argument = key.partition(".")
            if dot:
                own.setdefault(method, {})[argument] = text
        for name, found in vars(cls).items():
            if name.startswith("_") or not isinstance(found, FunctionType) or found.__name__ != name:
                continue
            if found.__code__.co_varnames[1:] and "\nArgs:\n" not in (found.__doc__ or ""):
                documented({**shared, **own[name]} if name in own else shared)(found)
        return cls

    return fill


# `import minorm` documents some hundred functions, so the code below must take only microseconds for each. It reads
# arguments from a function's code (inspect takes ten times as long), and composes shared entries only once.

_NONE = inspect.Parameter.empty


def _dedented(text: str) -> str:
    """Return inspect.cleandoc(text), but faster if the closing quotes are on a separate line."""
    body, newline, indent = text.rpartition("\n")
    if not newline or indent.strip():
        return inspect.cleandoc(text) if newline else text.strip()
    return body.replace(newline + indent, "\n").strip()


def _arguments(public: Callable[..., Any]) -> list[tuple[str, Any, str | None, str]]:
    """Return (name, type, default, stars) of each argument except self.

    The type is _NONE if the argument has no annotation. The default is None if the argument has no default.
    """
    function: Any = public
    function = function.__init__ if isinstance(public, type) else function
    given = 0  # number of arguments that a partial gives
    while hasattr(function, "__wrapped__"):
        given += unbound(function)[1]
        function = function.__wrapped__
    code, types = function.__code__, function.__annotations__
    names, count, stop = code.co_varnames, code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    defaults = dict(
        zip(names[count - len(function.__defaults__ or ()) : count], function.__defaults__ or (), strict=True)
    )
    defaults.update(function.__kwdefaults__ or {})
    starred, named = code.co_flags & inspect.CO_VARARGS, code.co_flags & inspect.CO_VARKEYWORDS
    order = names[given:count]
    if starred or named or stop > count:
        last = stop + bool(starred)
        order += names[stop:last] + names[count:stop] + (names[last : last + 1] if named else ())
    found = []
    for name in order:
        if name in ("self", "cls"):
            continue
        kind = types.get(name, _NONE)
        if kind not in _BUILT_IN:
            kind = _spelled(kind, function.__globals__)
        default = None
        if name in defaults:
            default = getattr(defaults[name], "__name__", None) or repr(defaults[name])
        place = names.index(name)
        stars = "" if place < stop else "*" if starred and place == stop else "**"
        found.append((name, kind, default, stars))
    return found


_BUILT_IN = {"Any", "Tensor", "Tensor | None", "bool", "float", "int", "str", "int | None", "float | None"}


def _spelled(kind: Any, names: Mapping[str, Any]) -> Any:
    """Return a type in the form for help(), where aliases such as `IntOrInts` are replaced by their types."""
    if not isinstance(kind, str):
        return kind
    found = [(word, names.get(word)) for word in kind.split(" | ")]
    return " | ".join(_bare(alias) if isinstance(alias, UnionType) else word for word, alias in found)


def _bare(alias: UnionType) -> str:
    """Return the types of an alias without their modules, such as `int | Sequence[int]`."""
    return str(alias).replace("collections.abc.", "").replace("minorm.tensor.", "")


@functools.cache
def _entry(name: str, kind: Any, default: str | None, stars: str, text: str) -> str:
    """Return an entry such as `    eps (float, default 1e-05): added to the variance`."""
    about = [] if kind in ("Any", _NONE) else [str(kind)]
    if default is not None:
        about.append(f"default {default}")
    described = f" ({', '.join(about)})" if about else ""
    start = f"    {stars}{name}{described}:"
    if len(start) + len(text) < WIDTH:
        return f"{start} {text}"
    return f"{start}\n{_wrapped(text, 8)}"


def _wrapped(text: str, indent: int) -> str:
    """Return the text wrapped into lines with this indent."""
    lines, margin = [], " " * indent
    while len(text) > WIDTH - indent and (end := text.rfind(" ", 0, WIDTH - indent + 1)) > 0:
        lines.append(f"{margin}{text[:end]}")
        text = text[end + 1 :]
    return "\n".join([*lines, f"{margin}{text}"])


def _fitted(paragraph: str) -> str:
    """Return the paragraph; wrap it again if it is prose and inserted words have made a line too long."""
    lines = paragraph.split("\n")
    wide = not paragraph.startswith((" ", "Example:")) and max(map(len, lines)) > WIDTH + 4
    return _wrapped(" ".join(lines), 0) if wide else paragraph
