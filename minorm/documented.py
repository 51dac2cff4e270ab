"""Docstrings in which every argument is described: what many functions share is written once.

    @documented(ARGUMENTS, size="how many neighbouring channels are summed over")
    def local_response_norm(x, size, alpha=1e-4): ...

`documented` puts a section `Args:` before the docstring's example: each argument of the signature, its type, its
default and its text. So a default is never out of date, and an argument without a text is an error of the import.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from minorm.mistakes import signature

WIDTH = 112  # of a line; help() indents by 4 or 8
Documented = TypeVar("Documented", bound=Callable[..., Any])


def documented(
    shared: Mapping[str, str], /, *, base: type | None = None, shape: str = "", **own: str
) -> Callable[[Documented], Documented]:
    """Decorate a public function or class so that its docstring describes each argument, by `own` or by `shared`.

    base: a class whose docstring goes on where this one ends, for layers that differ in the shape of x alone; `{name}`
    stands there for the name of this one, and `{shape}` for an example's shape of x.
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
        lines = [_entry(p, texts[p.name]) for p in signature(public).parameters.values()]
        public.__doc__ = "\n".join([head, "", "Args:", *lines]) + example + rest
        return public

    return fill


def _entry(parameter: inspect.Parameter, text: str) -> str:
    """`    eps (float, default 1e-05): added to the variance`"""
    about = [] if parameter.annotation in ("Any", parameter.empty) else [str(parameter.annotation)]
    if parameter.default is not parameter.empty:
        about.append(f"default {getattr(parameter.default, '__name__', repr(parameter.default))}")
    kind = parameter.kind
    stars = "*" if kind is parameter.VAR_POSITIONAL else "**" if kind is parameter.VAR_KEYWORD else ""
    described = f" ({', '.join(about)})" if about else ""
    start = f"    {stars}{parameter.name}{described}:"
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
