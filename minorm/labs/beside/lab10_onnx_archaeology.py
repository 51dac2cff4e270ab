"""Lab 10: turns bytes into models and passes them to the student's functions, some of which must raise ValueError."""

from __future__ import annotations

from typing import Any

from minorm.labs import zoo


def prepare() -> None:
    """Load everything that later needs an open file, because the process may soon open no more files."""
    zoo.parsed(b"")


def asked(module: Any, function: str, data: Any, domain: str | None = None, version: int = 0) -> Any:
    """Parse a model, and call `since`, `attributes` or `mode` for its node.

    Return the answer, or {"refused": True} for a ValueError.
    """
    model = zoo.parsed(data)
    node = model.graph.node[0]
    if domain is not None:
        node.domain = domain
    try:
        answer = getattr(module, function)(*((model, node) if function == "since" else (node, version)))
        return {"answer": answer}
    except ValueError:
        return {"refused": True}


def refusal(module: Any, function: str, args: Any) -> bool:
    """Return whether the function raises ValueError."""
    try:
        getattr(module, function)(*args)
    except ValueError:
        return True
    return False


def ran(module: Any, data: Any, x: Any) -> Any:
    """Parse the model in `data`, and call the student's `run` on it."""
    return module.run(zoo.parsed(data), x)
