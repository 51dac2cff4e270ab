"""Checks the arguments of normalizations, and finds the axes that follow from the arguments' shapes."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.functional.arguments import float_type, number, whole
from minorm.normalization.equation import Equation
from minorm.normalization.running import RunningStats
from minorm.support.argument_errors import called_within, outside
from minorm.tensor.tensor import Tensor

LOW_MOMENTUM = 0.5  # a lower momentum is probably meant as in PyTorch, as the share of the new value

# Types and eps


def check_types(operation: str, x: Any, compute_dtype: Any = None, **given: Any) -> Any:
    """Raise TypeError unless x and the given parameters are float Tensors; their types may differ.

    Returns the type of the computation: `compute_dtype` if it differs from the usual type for x, else None.
    `compute_dtype` may be float32 or float64, and must not be less precise than x.
    """
    dtype = float_type(operation, "x", x)
    for name, parameter in given.items():
        if parameter is not None and not (isinstance(parameter, Tensor) and parameter.array.dtype is dtype):
            float_type(operation, name, parameter)
    if compute_dtype is None:
        return None
    try:
        found = dtypes.check(compute_dtype)
    except TypeError as error:
        raise TypeError(f"{operation}: compute_dtype is {compute_dtype!r}; expected float32 or float64") from error
    if found not in (dtypes.float32, dtypes.float64) or found.itemsize < dtype.itemsize:
        raise TypeError(
            f"{operation}: compute_dtype is {found}, x is {dtype}; expected float32 or float64, "
            "and no less precise than x"
        )
    return None if found == dtypes.compute_type(dtype) else found


def equation(operation: str, eps: Any, centered: bool = True, guard: bool = False) -> Equation:
    """Return the Equation with these settings; raise an error unless eps is a number of at least 0."""
    if type(eps) is not float:
        number(operation, "eps", eps)
        eps = float(eps)
    if not eps >= 0:
        raise ValueError(f"{operation}: eps={eps}; expected a number of at least 0")
    return _equation(eps, centered, guard)


_equation = functools.lru_cache(maxsize=256)(Equation)


# Masks


def check_mask(operation: str, x: Tensor, mask: Any) -> None:
    """Raise an error unless mask is None or a bool Tensor that broadcasts to x."""
    if mask is None:
        return
    if not isinstance(mask, Tensor):
        raise TypeError(
            f"{operation}: mask is {type(mask).__name__}; expected a bool Tensor that is True where an element "
            "counts; use minorm.tensor(mask)"
        )
    if mask.dtype != dtypes.bool:
        raise TypeError(
            f"{operation}: mask is {mask.dtype}; expected bool, with True where an element counts; use "
            "mask.to(minorm.bool), or a comparison such as positions < lengths"
        )
    rank = len(mask.shape)
    tail = x.shape[x.ndim - rank :] if rank <= x.ndim else ()
    if rank > x.ndim or not all(n in (1, whole) for n, whole in zip(mask.shape, tail, strict=True)):
        raise ValueError(
            f"{operation}: mask has shape {mask.shape}; expected a shape that broadcasts to x.shape == {x.shape}: the "
            "last axes of x, each as long as in x or of length 1"
        )


def last_inputs(mask: Tensor | None, residual: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return (mask, residual), which are the last inputs of a Function. None at the end of the tuple is left out."""
    if residual is None:
        return () if mask is None else (mask,)
    return mask, residual


def check_unmasked(operation: str, mask: Any, group: Any) -> None:
    """Raise NotImplementedError if a mask is given for a group of several ranks. The ranks merge their moments with one
    count for all channels, but a mask needs a count for each channel.
    """
    if mask is not None:
        raise NotImplementedError(
            f"{operation}: a mask with a process_group of {group.size} ranks is not supported; expected mask=None, or "
            "process_group=None, which takes the statistics of this rank alone"
        )


# Running statistics


def running_stats(
    operation: str,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float | None,
    unbiased: bool,
    batches: Tensor | None,
    skipped: Tensor | None = None,
    update_nonfinite: bool = False,
) -> RunningStats | None:
    """Check the running statistics, and return a RunningStats. Return None if running_mean and running_var are None."""
    if running_mean is None and running_var is None:
        return None
    if running_mean is None or running_var is None:
        raise ValueError(f"{operation}: only one of running_mean and running_var is given; expected both or neither")
    if running_mean.array is running_var.array:
        raise ValueError(f"{operation}: running_mean and running_var are the same array; expected two arrays")
    if momentum is None:
        if batches is None:
            raise ValueError(
                f"{operation}: momentum=None averages over all batches and needs num_batches_tracked; "
                "pass it, or a momentum"
            )
    else:
        if type(momentum) is not float:
            number(operation, "momentum", momentum)
        if not 0 <= momentum <= 1:
            raise ValueError(f"{operation}: momentum={momentum}; expected the share of the old value to keep, 0 to 1")
        if momentum < LOW_MOMENTUM and not called_within(
            "minorm.functional", "minorm.support.argument_errors", "minorm.graph.trace"
        ):
            warn_of_low_momentum(operation, momentum)
    if not isinstance(update_nonfinite, (bool, np.bool)):
        raise TypeError(f"{operation}: update_nonfinite is {update_nonfinite!r}; expected True or False")
    counter = None if batches is None else _counter(operation, "num_batches_tracked", batches)
    left_out = None if skipped is None else _counter(operation, "skipped_batches", skipped)
    return RunningStats(
        running_mean.array, running_var.array, momentum, unbiased, counter, left_out, bool(update_nonfinite)
    )


def warn_of_low_momentum(name: str, momentum: float) -> None:
    """Warn that `momentum` probably has PyTorch's meaning, the share of the new value. A layer warns when its momentum
    is set. A function warns only if the user called the function directly.
    """
    warnings.warn(
        f"{name}: momentum={momentum} keeps {momentum:.0%} of the old running value at each step. "
        f"In minorm momentum is the share that is kept; PyTorch's momentum={momentum} is "
        f"momentum={1 - momentum:g} here. If you mean {momentum} all the same, silence this warning with "
        'warnings.filterwarnings("ignore", message=".*of the old running value")',
        stacklevel=outside(),
    )


def _counter(operation: str, name: str, counter: Any) -> Any:
    """Return the array of a counter, num_batches_tracked or skipped_batches; raise an error unless it holds one
    integer.
    """
    if not isinstance(counter, Tensor):
        raise TypeError(
            f"{operation}: {name} is {type(counter).__name__}; expected a Tensor as a counter, such as "
            "minorm.zeros((), dtype=minorm.int64)"
        )
    array = counter.array
    if array.dtype.kind not in "iu" or array.size != 1:
        raise ValueError(f"{operation}: {name} is {array.dtype} of shape {array.shape}; expected one integer")
    return array


def mark_changed(running: RunningStats | None, *tensors: Tensor | None) -> None:
    """If the running statistics have changed, increment the version of each tensor. Then backward can detect the
    change.
    """
    if running is not None and running.changed:
        for tensor in tensors:
            if tensor is not None:
                tensor.version.count += 1


# Checks


def batch_axes(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axes to reduce, and the axes along which the parameters vary.

    Parameters (C) vary along axis 1, and all other axes are reduced. Parameters (C, *positions) vary along all axes but
    0, and only axis 0 is reduced. Raises ValueError if x has no channels, or if the shape of weight, bias or a running
    statistic does not fit x.
    """
    tensors = {"weight": weight, "bias": bias, "running_mean": running_mean, "running_var": running_var}
    given = {name: tensor.shape for name, tensor in tensors.items() if tensor is not None}
    shape, rank = x.shape, x.ndim
    if rank < 2:
        raise ValueError(f"batch_norm: x has shape {shape}; expected (N, C) or (N, C, *positions)")
    each = rank > 2 and next(iter(given.values()), None) == shape[1:]
    axes, param = ((0,), tuple(range(1, rank))) if each else ((0, *range(2, rank)), (1,))
    expected = shape[1:] if each else (shape[1],)
    if 0 in expected:
        raise ValueError(f"batch_norm: x has no channels; x.shape is {shape}; expected C >= 1")
    for name, own in given.items():
        if own != expected:
            raise ValueError(
                f"batch_norm: {name} has shape {own}, x has {shape[1]} channels; expected {name}.shape == "
                f"{expected}; x.shape is {shape}"
            )
    return axes, param


def check_per_channel(operation: str, x: Tensor, **given: Tensor | None) -> None:
    """Raise ValueError if x has no channels, or if a tensor does not have one number for each channel."""
    channels = x.shape[1]
    if channels == 0:
        raise ValueError(f"{operation}: x has no channels; x.shape is {x.shape}; expected C >= 1")
    for name, tensor in given.items():
        if tensor is not None and tensor.shape != (channels,):
            raise ValueError(
                f"{operation}: {name} has shape {tensor.shape}, x has {channels} channels; expected {name}.shape == "
                f"({channels},); x.shape is {x.shape}"
            )


def check_groups(operation: str, x: Tensor, num_groups: int) -> int:
    """Return num_groups as an int; raise an error unless num_groups divides the number of channels of x."""
    num_groups = whole(operation, "num_groups", num_groups)
    if x.ndim < 2:
        raise ValueError(f"{operation}: x has shape {x.shape}; expected (N, C, *positions)")
    if x.shape[1] == 0:
        raise ValueError(f"{operation}: x has no channels; x.shape is {x.shape}; expected C >= 1")
    if num_groups < 1 or x.shape[1] % num_groups:
        raise ValueError(
            f"{operation}: num_groups={num_groups} must divide channels={x.shape[1]}; x.shape is {x.shape}"
        )
    return num_groups


def trailing_axes(
    operation: str, x: Tensor, normalized_shape: int | Sequence[int], **given: Tensor | None
) -> tuple[int, ...]:
    """Return the numbers of the last axes of x. Raise ValueError unless x ends in normalized_shape, and weight and bias
    have this shape.
    """
    sizes = normalized_shape if isinstance(normalized_shape, Iterable) else (normalized_shape,)
    shape = tuple([whole(operation, "normalized_shape", size) for size in sizes])
    rank = len(shape)
    if rank == 0 or x.array.shape[-rank:] != shape:
        raise ValueError(
            f"{operation}: normalized_shape is {shape}, x ends in {x.shape[-rank:] if rank else ()}; expected "
            f"normalized_shape == x.shape[-{max(rank, 1)}:]; x.shape is {x.shape}"
        )
    for name, tensor in given.items():
        if tensor is not None and tensor.array.shape != shape:
            raise ValueError(
                f"{operation}: {name} has shape {tensor.shape}; expected {name}.shape == normalized_shape == {shape}"
            )
    return tuple(range(x.ndim - rank, x.ndim))


def listed_axes(operation: str, x: Tensor, axes: Any) -> tuple[int, ...]:
    """Return the axes as a sorted tuple without negative numbers. Raise an error if x does not have an axis, or if an
    axis is listed twice.
    """
    if not isinstance(axes, Iterable):
        raise TypeError(f"{operation}: axes is {axes!r}; expected a tuple of ints")
    axes = [whole(operation, "one of axes", axis) for axis in axes]
    if not all(-x.ndim <= axis < x.ndim for axis in axes):
        raise ValueError(f"{operation}: axes {tuple(axes)} go beyond the {x.ndim} axes of x; x.shape is {x.shape}")
    found = tuple(sorted({axis % x.ndim for axis in axes}))
    if len(found) != len(axes):
        raise ValueError(f"{operation}: axes {tuple(axes)} name an axis twice; x.shape is {x.shape}")
    return found


def broadcast_axes(x: Tensor, scale: Tensor | None, bias: Tensor | None, num_groups: int) -> tuple[int, ...]:
    """Return the axes along which scale and bias vary, counted after the channels are split into groups."""
    shapes = [p.shape for p in (scale, bias) if p is not None]
    if not shapes:
        return ()
    shape = shapes[0]
    fits = len(shape) == x.ndim and all(
        n in (1, whole) or (i == 1 and n == num_groups)
        for i, (n, whole) in enumerate(zip(shape, x.shape, strict=False))
    )
    if shapes[-1] != shape or not fits:
        groups = f", or num_groups={num_groups} on axis 1" if num_groups > 1 else ""
        raise ValueError(
            f"normalization: scale has shape {shape_of(scale)}, bias {shape_of(bias)}; expected one shape with "
            f"{x.ndim} axes, each as long as in x or of length 1{groups}; x.shape is {x.shape}"
        )
    after = 1 if num_groups > 1 else 0
    param: list[int] = []
    for i, n in enumerate(shape):
        if i == 1 and after and n > 1:
            param += [1, 2] if n == x.shape[1] else [1]
        elif n == x.shape[i]:
            param.append(i + after if i > 1 else i)
    return tuple(param)


def shape_of(tensor: Tensor | None) -> Any:
    """Return the shape of a tensor for a message, or None if the tensor is None."""
    return None if tensor is None else tensor.shape
