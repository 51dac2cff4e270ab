"""autocast: each operation gets its inputs in the type that suits it.

    16 bits    matrix products, convolutions, recurrent layers
    float32    exponentials, logarithms, powers, sums, softmax, losses: what leaves the range of 16 bits, or adds up
    widest     where the inputs of another operation are of several float types, the widest of these
    as it is   everything else, normalizations among it: they compute in float32 whatever they read

Softmax and the cross entropy read 16 bits as they are: they widen what they read, and give float32.

Only float32 and 16-bit inputs are cast, float64 never. Casts are operations of the graph, so that a float32 parameter
gets a float32 gradient. PyTorch has one policy for "cuda" and another for "cpu"; this is one for both, and near to the
former. There normalizations of rows and groups give float32.
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
DEVICE = {"device_type": '"cuda" or "cpu"'}  # what docstrings say of it
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
    """Return the inputs of an operation as the policy wants them."""
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
    """Give operations inside the block their inputs in the type that suits them; `minorm.amp.casting` lists which.

    Args:
        device_type (str): "cuda" or "cpu": whose tensors are cast
        dtype (dtype, default None): float16 or bfloat16; None is float16 on "cuda" and bfloat16 on "cpu"
        enabled (bool, default True): False leaves the types alone inside, within another autocast too
        cache_enabled (bool, default None): PyTorch's; nothing is cached here

    A `with` block or a decorator, for the forward pass and the loss; backward() follows the types that forward had,
    inside or outside. Each thread has its own. An export sees the model as it is without.

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
        """Return the state inside: this device's type, and the types that outer autocasts ask for on other devices."""
        types = {device: kind for device, kind in trace.state.cast_types.items() if device != self.device}
        if self.asked:
            types[self.device] = self.fast_dtype
        return {"cast_types": types, "cast": _cast if types else None}

    def _recreate_cm(self) -> autocast:
        return autocast(self.device, self.fast_dtype, self.asked, self.cache_enabled)  # threads may run it at once


@documented(DEVICE)
@checked
def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Return True inside an `autocast` of this kind of device, in this thread.

    Example:
        >>> with mn.autocast("cpu"):
        ...     mn.is_autocast_enabled("cpu"), mn.is_autocast_enabled("cuda")
        (True, False)
    """
    return device_type in trace.state.cast_types


@documented(DEVICE)
@checked
def get_autocast_dtype(device_type: str) -> Type:
    """Return the 16-bit type of the `autocast` that is open; outside of one, what it would be without `dtype`.

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
