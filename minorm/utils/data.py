"""`import minorm.utils.data`: the names of minorm.data, under PyTorch's address."""

from minorm.data import *  # noqa: F403
