"""Lab 5: what repairs are made of."""

from __future__ import annotations

from typing import Any

from minorm.creation import tensor
from minorm.optim.swa_utils import update_bn


def recalibrate(model: Any, images: Any, batch_size: int = 256) -> None:
    """The library's own."""
    starts = range(0, len(images) - batch_size + 1, batch_size)
    update_bn((tensor(images[start : start + batch_size]) for start in starts), model)
