"""Makes the names of minorm.data available as `minorm.utils.data`, as in PyTorch."""

from minorm.data import *  # noqa: F403
