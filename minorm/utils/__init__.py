"""PyTorch's utils: `minorm.utils.data` is `minorm.data`; `minorm.utils.checkpoint` saves memory, but takes time."""

from minorm.utils import checkpoint, data

__all__ = ["checkpoint", "data"]
