"""`import minorm.utils.data`, as in PyTorch, gives the names of minorm.data."""

from minorm.data import *  # noqa: F403
