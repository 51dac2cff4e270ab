"""Clips gradients between backward and step, and turns parameters into one vector and back."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from minorm import devices
from minorm.kernels.select import backend
from minorm.support.argument_errors import checked, conversion, is_foreign, kind_of
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

GRADIENTS = {
    "parameters": "Tensors such as model.parameters(), or one Tensor",
    "foreach": "accepted but ignored: all tensors always change together",
}


@documented(
    GRADIENTS,
    max_norm="the largest norm allowed",
    norm_type="the p of the norm: 2 is the length, math.inf the largest absolute value",
    error_if_nonfinite=(
        "True raises an error if the norm is NaN or infinite, False multiplies the gradients by the resulting factor"
    ),
)
@checked
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
    foreach: bool | None = None,  # noqa: ARG001  all tensors always change together
) -> Tensor:  # fmt: skip
    """gradient *= max_norm / (norm + 1e-6) for all gradients, if the norm of all gradients together is above max_norm.

    The gradients change in place; parameters without a gradient are skipped. Returns the norm before clipping as a
    Tensor without axes. The norm is computed in float64, in a fixed order. Raises ValueError if max_norm < 0 or
    norm_type <= 0. With error_if_nonfinite=True, raises RuntimeError if the norm is not finite.

    Example:
        >>> w = mn.zeros(2, requires_grad=True)
        >>> (w * mn.tensor([3.0, 4.0])).sum().backward()
        >>> nn.utils.clip_grad_norm_([w], max_norm=1.0)
        tensor(5.)
        >>> w.grad
        tensor([0.6, 0.8])

    Pascanu, Mikolov and Bengio 2012, arXiv:1211.5063.
    """
    if not max_norm >= 0:
        raise ValueError(f"clip_grad_norm_: max_norm={max_norm}; expected at least 0")
    if not norm_type > 0:
        raise ValueError(f"clip_grad_norm_: norm_type={norm_type}; expected more than 0")
    gradients = _gradients("clip_grad_norm_", parameters)
    arrays = [gradient.array for gradient in gradients]
    if not all(map(devices.is_host, arrays)):
        look = (lambda found: _check_finite(found.item())) if error_if_nonfinite else None
        found = _gpu(arrays).clipping.clip_norm(arrays, max_norm, float(norm_type), look)
        _changed(gradients)
        return Tensor(found)
    norm = _norm(arrays, float(norm_type))
    if error_if_nonfinite:
        _check_finite(norm)
    factor = max_norm / (norm + 1e-6)
    if arrays and not factor >= 1:
        backend(arrays[0]).update.scale(arrays, factor)
        _changed(gradients)
    dtype = arrays[0].dtype if arrays else np.dtype(np.float32)
    return Tensor(np.array(norm, dtype))


def _gpu(arrays: list[Any]) -> Any:
    return backend(next(array for array in arrays if not devices.is_host(array)))


def _check_finite(norm: float) -> None:
    if not math.isfinite(norm):
        raise RuntimeError(
            f"clip_grad_norm_: the norm of the gradients is {norm}; a gradient has NaN or infinity. Look at the loss "
            "and the learning rate, or pass error_if_nonfinite=False"
        )


@documented(GRADIENTS, clip_value="the largest absolute value allowed")
@checked
def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor],
    clip_value: float,
    foreach: bool | None = None,  # noqa: ARG001
) -> None:
    """gradient = min(max(gradient, -clip_value), clip_value) for every gradient, in place.

    Parameters without a gradient are skipped. Raises ValueError if clip_value < 0.

    Example:
        >>> w = mn.zeros(2, requires_grad=True)
        >>> (w * mn.tensor([0.3, 4.0])).sum().backward()
        >>> nn.utils.clip_grad_value_([w], 1.0)
        >>> w.grad
        tensor([0.3, 1. ])
    """
    if not clip_value >= 0:
        raise ValueError(f"clip_grad_value_: clip_value={clip_value}; expected at least 0")
    gradients = _gradients("clip_grad_value_", parameters)
    arrays = [gradient.array for gradient in gradients]
    if not all(map(devices.is_host, arrays)):
        _gpu(arrays).clipping.clip_value(arrays, clip_value)
    else:
        for array in arrays:
            array[...] = array.clip(-clip_value, clip_value)
    _changed(gradients)


@documented(GRADIENTS)
@checked
def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Returns a new vector with copies of all parameters, one after the other. The vector does not require grad.

    Raises ValueError if there are no parameters.

    Example:
        >>> nn.utils.parameters_to_vector(nn.Linear(4, 2).parameters()).shape
        (10,)
    """
    arrays = [p.array.reshape(-1) for p in _tensors("parameters_to_vector", parameters)]
    if not arrays:
        raise ValueError("parameters_to_vector: parameters is empty; expected at least one")
    with devices.on_device_of(arrays[0]):
        return Tensor(np.concatenate(arrays))


@documented(GRADIENTS, vec="(all elements), the result of `parameters_to_vector`")
@checked
def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Copies a vector back into the parameters, in the order of `parameters_to_vector`, in place.

    Raises ValueError if the vector's length is not the number of elements of all parameters.

    Example:
        >>> layer = nn.Linear(4, 2)
        >>> nn.utils.vector_to_parameters(mn.zeros(10), layer.parameters())
        >>> layer.bias.detach()
        tensor([0., 0.])
    """
    tensors = _tensors("vector_to_parameters", parameters)
    expected = sum(p.array.size for p in tensors)
    if vec.array.shape != (expected,):
        raise ValueError(f"vector_to_parameters: vec.shape is {vec.array.shape}; expected {(expected,)}")
    start = 0
    for p in tensors:
        with devices.on_device_of(p.array):
            p.array[...] = vec.array[start : start + p.array.size].reshape(p.array.shape)
        p.version.count += 1
        start += p.array.size


def _norm(arrays: list[Any], norm_type: float) -> float:
    if not arrays:
        return 0.0
    if norm_type == 2.0:
        square_sum = backend(arrays[0]).update.square_sum
        return math.sqrt(sum(square_sum(a) for a in arrays))
    sizes = [np.abs(a.astype(np.float64)) for a in arrays if a.size]
    if math.isinf(norm_type):
        return float(np.max([a.max() for a in sizes], initial=0.0))
    return float(sum((a**norm_type).sum() for a in sizes) ** (1 / norm_type))


def _tensors(operation: str, parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    if hasattr(parameters, "parameters"):
        raise TypeError(f"{operation}: parameters is a {kind_of(parameters)}; expected a list of Tensors; pass the "
                        "model's parameters, not the model: model.parameters()")  # fmt: skip
    tensors: list[Any] = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    for index, tensor in enumerate(tensors):
        if not isinstance(tensor, Tensor):
            name = f"parameters[{index}]"
            fix = f"; {conversion(name, tensor)}" if is_foreign(tensor) else ""
            raise TypeError(f"{operation}: {name} is a {kind_of(tensor)}; expected a Tensor{fix}")
    return tensors


def _gradients(operation: str, parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [p.grad for p in _tensors(operation, parameters) if p.grad is not None]


def _changed(tensors: list[Tensor]) -> None:
    for tensor in tensors:
        tensor.version.count += 1
