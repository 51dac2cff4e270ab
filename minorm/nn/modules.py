"""`from minorm.nn.modules import Module`: the layers of minorm.nn, under PyTorch's address."""

import minorm.nn as _nn
from minorm.nn import *  # noqa: F403

__getattr__, __dir__ = _nn.__getattr__, _nn.__dir__
