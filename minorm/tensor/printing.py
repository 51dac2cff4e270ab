"""Writes a Tensor as text: its elements, then its type, device and history."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm import devices
from minorm.devices import dtypes
from minorm.support.argument_errors import checked
from minorm.support.documented import documented

_options: dict[str, Any] = {"precision": 4, "threshold": 100, "edgeitems": 3, "linewidth": 75, "suppress": False}
_profiles = {
    "default": {"precision": 4, "threshold": 100, "edgeitems": 3, "linewidth": 75},
    "short": {"precision": 2, "threshold": 100, "edgeitems": 2, "linewidth": 75},
    "full": {"precision": 4, "threshold": 2**62, "edgeitems": 3, "linewidth": 75},
}


@documented(
    {},
    precision="the number of digits after the point",
    threshold="if a tensor has more elements than this, each axis shows only `edgeitems` elements at each end",
    edgeitems="the number of elements to show at each end of a shortened axis",
    linewidth="the number of characters per line",
    profile='"default", "short" or "full" sets all other options',
    sci_mode="True always writes numbers as 1e-05, False never; None decides by the numbers",
)
@checked
def set_printoptions(
    precision: int | None = None,
    threshold: int | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Change how tensors are printed. Options that are None do not change, except sci_mode, which is reset.

    Raises ValueError for an unknown profile.

    Example:
        >>> mn.set_printoptions(precision=2)
        >>> mn.tensor([1 / 3])
        tensor([0.33])
        >>> mn.set_printoptions(profile="default")
    """
    if profile is not None:
        if profile not in _profiles:
            raise ValueError(f"set_printoptions: profile is {profile!r}; expected one of {', '.join(_profiles)}")
        _options.update(_profiles[profile])
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    _options.update({name: value for name, value in given.items() if value is not None})
    _options["suppress"] = sci_mode is False


def text(x: Any) -> str:
    """Return the `repr` of a Tensor."""
    options = {**_options, "max_line_width": _options["linewidth"], "suppress_small": _options["suppress"]}
    del options["linewidth"], options["suppress"]
    elements = devices.to_device(x.array, "cpu")
    body = np.array2string(elements, separator=", ", prefix="tensor(", **options)
    notes = "" if x.device == "cpu" else f", device='{x.device}'"
    notes += "" if x.dtype in (dtypes.get_default_dtype(), dtypes.int64, dtypes.bool) else f", dtype={x.dtype}"
    if x.creator is not None:
        notes += f", creator={type(x.creator).__name__}"
    elif x.requires_grad:
        notes += ", requires_grad=True"
    return f"tensor({body}{notes})"
