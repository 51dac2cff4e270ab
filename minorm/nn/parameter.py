"""Parameter and Buffer: Tensors that a Module registers. The Module lists parameters for optimizers, and saves
parameters and buffers in its state_dict.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm import devices
from minorm.devices import dtypes
from minorm.kernels import select
from minorm.support.argument_errors import is_foreign, not_a_tensor
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


@documented(
    {},
    data="a Tensor or an array, whose memory is shared, not copied; numbers and lists become float32",
    requires_grad="False excludes the parameter from training",
)
class Parameter(Tensor):
    """A learned Tensor, which requires grad. Assigning a Parameter to an attribute of a Module registers the Parameter.

    Raises TypeError if requires_grad=True and data is not of a float type.

    Example:
        >>> layer = nn.Module()
        >>> layer.scale = nn.Parameter(mn.ones(3))
        >>> list(layer.state_dict())
        ['scale']
        >>> layer.scale.requires_grad
        True
    """

    __slots__ = ()

    def __init__(self, data: Any, requires_grad: bool = True) -> None:
        array = data.array if isinstance(data, Tensor) else data
        if not select.is_array(array) and is_foreign(array):
            raise not_a_tensor("Parameter", "data", array)
        if not hasattr(array, "dtype"):
            array = np.asarray(array, dtypes.get_default_dtype())
        if requires_grad and not dtypes.is_float(array.dtype):
            raise TypeError(
                f"Parameter: data is {array.dtype}; expected a float type, because only floats have gradients; "
                "convert it, pass requires_grad=False, or use register_buffer"
            )
        super().__init__(array, requires_grad=requires_grad)
        if isinstance(data, Tensor):
            self.version = data.version  # both share the memory, so they share the count of its changes

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()


@documented(
    {},
    data="a Tensor or an array, whose memory is shared, not copied",
    persistent="False keeps the buffer out of the state_dict",
)
class Buffer(Tensor):
    """A Tensor that is saved but not learned. Assigning a Buffer to an attribute of a Module registers the Buffer.

    A Buffer moves with the model (`to`), and is in the state_dict.

    Example:
        >>> layer = nn.Module()
        >>> layer.mean = nn.Buffer(mn.zeros(3))
        >>> list(layer.state_dict()), list(layer.parameters())
        (['mean'], [])
    """

    __slots__ = ("persistent",)

    def __init__(self, data: Any, *, persistent: bool = True) -> None:
        given = isinstance(data, Tensor)
        super().__init__(data.array if given else data)
        self.persistent = persistent
        if given:
            self.version = data.version


def uninitialized(shape: tuple[int, ...], dtype: Any = None, device: Any = None) -> Parameter:
    """Return a Parameter of this shape without initial values. If dtype is None, the Parameter has the default type."""
    with devices.on(device) as xp:
        return Parameter(xp.empty(shape, dtypes.get_default_dtype() if dtype is None else dtypes.check(dtype)))


def check_sizes(layer: str, **sizes: Any) -> None:
    """Raise TypeError or ValueError unless every size is an int of at least 1."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
            raise TypeError(f"{layer}: {name} is {size!r}; expected an int")
        if size < 1:
            raise ValueError(f"{layer}: {name} is {size}; expected at least 1")
