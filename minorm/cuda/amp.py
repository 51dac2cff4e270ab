"""The older name of `minorm.amp`: `from minorm.cuda.amp import autocast, GradScaler`."""

from __future__ import annotations

from typing import Any

from minorm import amp
from minorm.amp import GradScaler

__all__ = ["GradScaler", "autocast"]


class autocast(amp.autocast):  # noqa: N801  PyTorch's name
    """The same as `amp.autocast("cuda")`."""

    def __init__(self, enabled: bool = True, dtype: Any = None, cache_enabled: Any = None) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)
