"""Networks of millions of weights that are built in a moment: their weights are not drawn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from minorm import nn


@contextmanager
def undrawn() -> Iterator[None]:
    """Leave weights uninitialized: drawing them takes most of the time of building a network."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("uniform_", "normal_", "trunc_normal_"):
            patch.setattr(nn.init, name, lambda tensor, *_, **__: tensor)
        yield
