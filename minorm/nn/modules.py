"""The layers of minorm.nn under the module name that PyTorch uses: `from minorm.nn.modules import Module`."""

import minorm.nn as _nn
from minorm.nn import *  # noqa: F403

__getattr__, __dir__ = _nn.__getattr__, _nn.__dir__
