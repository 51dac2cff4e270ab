"""Run a case on minorm: load the case's file as a module, or call `batch_norm` for masks and plain averages."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from minorm.conformance.case import Case, model
from minorm.functional import batch_norm
from minorm.onnx import backend, load
from minorm.tensor.tensor import Tensor


def answer(case: Case) -> list[Any]:
    """Run the case on minorm; return the outputs that the case asks for."""
    return list(backend.run_model(model(case), case.feeds()))


def gradients(case: Case) -> list[Any]:
    """Return the gradients of the inputs. Scale and bias have gradients because they are weights of the file."""
    module = load(model(dataclasses.replace(case, held=tuple(range(1, len(case.inputs))))))
    x, parameters = Tensor(case.inputs[0], requires_grad=True), dict(module.named_parameters())
    module(x).backward(Tensor(case.beside))
    asked = (x, *(parameters[f"i{place}"] for place, _ in case.wanted[1:]))
    return [None if tensor.grad is None else tensor.grad.array for tensor in asked]


def masked(case: Case) -> list[Any]:
    """Run batch_norm with the case's mask.

    Return y, which is 0 where the mask is False, and the new running statistics.
    """
    x, scale, bias, mean, var = (Tensor(array.copy()) for array in case.inputs)  # the call changes the statistics
    mask = case.beside[:, None, :]
    more = {"momentum": case.get("momentum", 0.9), "mask": Tensor(mask)}
    y = batch_norm(x, mean, var, scale, bias, training=True, **more)
    return [np.where(mask, y.array, 0), mean.array, var.array]


def cumulative(case: Case) -> list[Any]:
    """Return the running statistics after training with momentum=None on each sample of x as a batch."""
    _, scale, bias, mean, var = (Tensor(array.copy()) for array in case.inputs)
    seen = Tensor(np.zeros((), np.int64))
    for sample in case.inputs[0]:
        x = Tensor(sample[None])
        batch_norm(x, mean, var, scale, bias, training=True, momentum=None, num_batches_tracked=seen)
    return [mean.array, var.array]
