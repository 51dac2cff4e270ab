"""PyTorch's place for data: `minorm.utils.data` is `minorm.data`."""

from minorm.utils import data

__all__ = ["data"]
