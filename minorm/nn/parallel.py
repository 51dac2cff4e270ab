"""An empty module, so that `import minorm.nn.parallel` runs. In PyTorch this module has DataParallel."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"module 'minorm.nn.parallel' has no attribute {name!r}; processes train together through minorm.distributed"
    )
