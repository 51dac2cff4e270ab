"""PyTorch's switches of its backends, so that programs that set them run: here they change nothing.

`backends.cudnn.benchmark = True` is taken, since nothing has to be tried out; results are deterministic anyway.
"""

from __future__ import annotations

from minorm import cuda


class _Backend:
    """Switches that may be set, and whether the backend is there."""

    def __init__(self, there: bool | None) -> None:
        self.enabled, self.benchmark, self.deterministic, self.allow_tf32 = True, False, True, False
        self._there = there

    def is_available(self) -> bool:
        """Whether this installation can use it."""
        return cuda.is_available() if self._there is None else self._there


cudnn, mps, mkldnn = _Backend(None), _Backend(False), _Backend(False)
