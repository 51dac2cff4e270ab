"""`import minorm.nn.functional as F`: the names of minorm.functional, under PyTorch's address."""

import minorm.functional as _functional
from minorm.functional import *  # noqa: F403

__getattr__, __dir__ = _functional.__getattr__, _functional.__dir__
