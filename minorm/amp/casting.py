"""autocast: converts the inputs of each operation to the type in which the operation should compute.

    16 bits    matrix products, convolutions, recurrent layers
    float32    exponentials, logarithms, powers, sums, softmax, losses, whose results may exceed the range of 16 bits
    widest     other operations with inputs of several float types, which compute in the widest of these types
    no cast    all other operations, such as normalizations, which always compute in float32

Softmax and the cross entropy read 16-bit inputs without a cast: they widen the numbers themselves, and return float32.

Only float32 and 16-bit inputs are cast; float64 inputs are not. Casts are operations of the graph, so that a float32
parameter gets a float32 gradient. PyTorch has different policies for "cuda" and "cpu". minorm has one policy, which is
close to PyTorch's policy for "cuda". But in PyTorch's policy, normalizations of rows and groups return float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import minorm_ext
from minorm.devices import dtypes
from minorm.graph import trace
from minorm.ops import (
    activation,
    convolution,
    ctc,
    elementary,
    elementwise,
    linear,
    loss,
    matmul,
    recurrent,
    reduction,
    response,
    special,
)
from minorm.support.argument_errors import Checked, checked
from minorm.support.decorating import Block
from minorm.support.documented import documented

Type = np.dtype[Any]
DEFAULT = {"cuda": dtypes.float16, "cpu": dtypes.bfloat16}
DEVICE = {"device_type": '"cuda" or "cpu"'}  # the text in docstrings
CASTABLE = dtypes.HALVES | {dtypes.float32}

CONVOLUTIONS: frozenset[type] = frozenset({convolution.Convolution, convolution.ConvolutionTranspose})
LOWER: frozenset[type] = frozenset(
    {
        matmul.MatMul, linear.Linear, *CONVOLUTIONS,
        *recurrent.Recurrent.__subclasses__(),
    }
)  # fmt: skip
FULL: frozenset[type] = frozenset(
    {
        elementwise.Exp, elementwise.Log, elementwise.Pow, elementary.Log1p, elementary.Expm1, special.ErfInv,
        activation.Softplus,
        reduction.Sum, reduction.Prod, reduction.LogSumExp, reduction.CumSum, reduction.CumProd, response.LpNormalize,
        loss.SoftCrossEntropy, loss.NLL, *loss.Difference.__subclasses__(), loss.BinaryCrossEntropy,
        loss.LogOfProbabilities, ctc.CTC,
    }
)  # fmt: skip

WIDENING: frozenset[type] = frozenset({activation.Softmax, activation.LogSoftmax, loss.CrossEntropy})  # as they read


def _cast(function: type, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the inputs of an operation, cast to the type that the policy prescribes."""
    lower = trace.state.cast_types.get("cpu" if type(inputs[0].array) is np.ndarray else "cuda")
    if lower is None:
        return inputs
    if function in LOWER:
        wanted = lower
    elif function in FULL:
        wanted = dtypes.float32
    else:
        return inputs
    kinds = {x.array.dtype for x in inputs if x is not None}
    if dtypes.float64 in kinds:
        return inputs
    cast = convolution.CastLaidOut if function in CONVOLUTIONS else elementwise.Cast
    return tuple([x if x is None else _in(x, wanted, cast) for x in inputs])


def _in(x: Any, wanted: Type, cast: Any) -> Any:
    kind = x.array.dtype
    return cast.apply(x, dtype=wanted) if kind in CASTABLE and kind != wanted else x


class autocast(minorm_ext.Switch, Block, Checked):  # type: ignore[misc]  # noqa: N801  PyTorch's name
    """Casts the inputs of operations in its block to the type in which each operation should compute.

    `minorm.amp.casting` lists the types.

    Args:
        device_type (str): "cuda" or "cpu": the device whose tensors are cast
        dtype (dtype, default None): float16 or bfloat16; None is float16 on "cuda" and bfloat16 on "cpu"
        enabled (bool, default True): False casts nothing in the block, even inside another autocast
        cache_enabled (bool, default None): accepted as in PyTorch, without effect

    Use it as a `with` block or a decorator, for the forward pass and the loss. backward() uses the types of the forward
    pass, inside the block or outside. Each thread has its own autocast. An export ignores autocast.

    Example:
        >>> x, layer = mn.ones(2, 3), mn.nn.Linear(3, 4)
        >>> with mn.autocast("cpu"):
        ...     y = layer(x)
        >>> y.dtype, layer.weight.dtype
        (dtype(bfloat16), dtype('float32'))
    """

    def __init__(
        self, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        if device_type not in DEFAULT:
            raise ValueError(f"autocast: device_type is {device_type!r}; expected 'cuda' or 'cpu'")
        kind = DEFAULT[device_type] if dtype is None else dtypes.check(dtype)
        if enabled and kind not in dtypes.HALVES:
            raise TypeError(f"autocast: dtype is {kind}; expected float16 or bfloat16")
        super().__init__(trace.state, self._inside)
        self.device, self.fast_dtype, self.cache_enabled = device_type, kind, cache_enabled
        self.asked = enabled

    def _inside(self) -> dict[str, Any]:
        """Return the settings inside the block.

        Surrounding autocasts choose the types for other devices; this autocast chooses only the type for its own
        device.
        """
        types = {device: kind for device, kind in trace.state.cast_types.items() if device != self.device}
        if self.asked:
            types[self.device] = self.fast_dtype
        return {"cast_types": types, "cast": _cast if types else None}

    def _recreate_cm(self) -> autocast:
        return autocast(self.device, self.fast_dtype, self.asked, self.cache_enabled)  # threads may share it


@documented(DEVICE)
@checked
def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Return True if an `autocast` for `device_type` is active in this thread.

    Example:
        >>> with mn.autocast("cpu"):
        ...     mn.is_autocast_enabled("cpu"), mn.is_autocast_enabled("cuda")
        (True, False)
    """
    return device_type in trace.state.cast_types


@documented(DEVICE)
@checked
def get_autocast_dtype(device_type: str) -> Type:
    """Return the 16-bit type of the surrounding `autocast`; outside an autocast, return the default type.

    Example:
        >>> mn.get_autocast_dtype("cpu"), mn.get_autocast_dtype("cuda")
        (dtype(bfloat16), dtype('float16'))
    """
    if device_type not in DEFAULT:
        raise ValueError(f"get_autocast_dtype: device_type is {device_type!r}; expected 'cuda' or 'cpu'")
    return trace.state.cast_types.get(device_type, DEFAULT[device_type])


@documented(DEVICE)
@checked
def is_autocast_available(device_type: str) -> bool:
    """Return True for "cuda" and "cpu".

    Example:
        >>> mn.is_autocast_available("cpu")
        True
    """
    return device_type in DEFAULT
