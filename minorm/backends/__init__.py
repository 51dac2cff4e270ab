"""PyTorch's switches of its backends, so that programs that set them run: here they change nothing.

`backends.cudnn.benchmark = True` is taken, since nothing has to be tried out; results are deterministic anyway.
"""

from __future__ import annotations

from minorm.backends import cudnn, mkldnn, mps

__all__ = ["cudnn", "mkldnn", "mps"]
