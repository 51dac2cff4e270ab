"""Find where an activation is flat: its slope is below 1 % of its largest slope, so hardly any gradient passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

FLAT = 0.01  # of the largest slope

WHERE: dict[str, Callable[[Any, Any], Any]] = {
    "sigmoid": lambda x, _: np.abs(x) > 5.98,
    "tanh": lambda x, _: np.abs(x) > 2.993,
    "hardsigmoid": lambda x, _: np.abs(x) > 3,
    "hardtanh": lambda x, o: (x > o.get("max_val", 1)) | (x < o.get("min_val", -1)),
    "softsign": lambda x, _: np.abs(x) > 9,
    "relu6": lambda x, _: x > 6,
    "elu": lambda x, o: _tail(x, o.get("alpha", 1.0), 1.0),
    "selu": lambda x, _: _tail(x, 1.6733, 1.0),
    "celu": lambda x, o: _tail(x, 1.0, o.get("alpha", 1.0)),
}


def _tail(x: Any, alpha: float, width: float) -> Any:
    """Return alpha exp(x / width) < 0.01 max(1, alpha), which is True where the exponential tail is flat."""
    return x < width * np.log(FLAT * max(1.0, alpha) / alpha)


def flat(what: str, x: Any, options: Any, others: tuple[int, ...], channels: int) -> Any:
    """Count, for each channel, the values where the activation is flat; `others` are the axes besides the channels."""
    rule = WHERE.get(what)
    return np.zeros(channels) if rule is None else rule(x, options).sum(others)
