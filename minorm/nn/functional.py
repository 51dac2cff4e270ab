"""The functions of minorm.functional under the module name that PyTorch uses: `import minorm.nn.functional as F`."""

import minorm.functional as _functional
from minorm.functional import *  # noqa: F403

__getattr__, __dir__ = _functional.__getattr__, _functional.__dir__
