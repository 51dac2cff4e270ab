"""PyTorch's places: `minorm.utils.data` is `minorm.data`; `minorm.utils.checkpoint` saves memory for time."""

from minorm.utils import checkpoint, data

__all__ = ["checkpoint", "data"]
