"""`import minorm.nn.functional as F`: the names of minorm.functional, under PyTorch's address."""

from minorm.functional import *  # noqa: F403
