"""An empty module, where PyTorch has DataParallel, so that `import minorm.nn.parallel` runs."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"module 'minorm.nn.parallel' has no attribute {name!r}; processes train together through minorm.distributed"
    )
