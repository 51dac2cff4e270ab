"""Lays the weights of convolutions on a GPU as the convolutions read them: with the channels last for tensor cores.

A convolution in 16 bits, or in float32 with TF32, reads images and weights with the channels last. If the weights of a
layer lie so, nothing is turned in a training step: not the weights, not their copies in autocast, and not their
gradients, which lie as the weights. `model.to("cuda")` lays weights so if their type and the switches tell that tensor
cores will compute. Otherwise the first convolution does this that runs on tensor cores, as in autocast. From then on,
the weights keep this order. Convolutions that run in rows read them too, though more slowly.

The order changes no bit of a result. A layer gets a new array, so a Tensor that shares memory with the weights, such as
an entry of a state_dict, keeps the old one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm import devices
from minorm.devices import capture
from minorm.graph import trace
from minorm.kernels.order import is_in_rows
from minorm.kernels.select import backend


def of_convolution(array: Any, dtype: Any) -> Any:
    """Return weights in the order in which a convolution of the type `dtype` reads them: the array itself or a copy."""
    if devices.is_host(array):
        return array
    with devices.on_device_of(array):
        return backend(array).conv.weights_laid_out(array, dtype)


def prepare(weight: Any) -> None:
    """Lay the weights of a layer as its convolution, which runs next, reads them.

    A result of other operations, such as a weight norm, stays as it is. So does everything during the capture of a CUDA
    graph, which would repeat the copy in each replay.
    """
    array = weight.array
    if type(array) is np.ndarray or weight.creator is not None or not is_in_rows(array):
        return
    lower = trace.state.cast_types.get("cuda") if trace.state.cast is not None else None
    laid = of_convolution(array, lower or array.dtype)
    if laid is array or capture.recording() is not None:
        return
    weight.set_array(laid)
    if weight.grad is not None and weight.grad.array.base is None:  # a view may belong to a buffer of all gradients
        weight.grad.set_array(of_convolution(weight.grad.array, lower or array.dtype))
