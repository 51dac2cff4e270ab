"""Run a case on PyTorch, if PyTorch has the operator; translates PyTorch's conventions, but not its arithmetic.

We translate three conventions: PyTorch's momentum is the share of the *new* value, its running variance divides by N -
1, and its LRN window of an even size has the additional channel on the other side. A case that PyTorch cannot express
raises an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from minorm.conformance.case import Case
from minorm.conformance.formula import STASH, trains_batch_norm
from minorm.devices.dtypes import bfloat16


def answer(case: Case) -> list[Any]:
    """Run the case on PyTorch; return the outputs that the case asks for, as arrays."""
    import torch

    with torch.no_grad():
        results = _called(case, map(to_tensor, case.inputs))
    return [to_array(results[place]) for place, _ in case.wanted]


def gradients(case: Case) -> list[Any]:
    """Return the gradients of x, scale and bias, which autograd computes."""
    import torch

    given = [to_tensor(array) for array in case.inputs]
    asked = [tensor.requires_grad_() for tensor in given[: len(case.wanted)]]
    found = torch.autograd.grad(_called(case, given)[0], asked, to_tensor(case.beside))
    return [to_array(gradient) for gradient in found]


def cumulative(case: Case) -> list[Any]:
    """Return the running statistics after training with momentum=None on each sample of x as a batch."""
    import torch

    x, scale, bias, mean, var = map(to_tensor, case.inputs)
    layer = torch.nn.BatchNorm2d(len(mean), momentum=None, dtype=x.dtype)
    layer.load_state_dict(
        {"weight": scale, "bias": bias, "running_mean": mean, "running_var": var,
         "num_batches_tracked": torch.zeros((), dtype=torch.int64)}
    )  # fmt: skip
    with torch.no_grad():
        for sample in x:
            layer(sample[None])
    n = x[0, 0].numel()
    return [to_array(layer.running_mean), to_array(layer.running_var * ((n - 1) / n))]


def _called(case: Case, given: Iterable[Any]) -> list[Any]:
    if case.operator not in CALLS:
        raise NotImplementedError(f"PyTorch has no {case.operator}")
    return CALLS[case.operator](case, *given)


def _batch_norm(case: Case, x: Any, s: Any, b: Any, mean: Any, var: Any) -> list[Any]:
    from torch.nn import functional

    if s.ndim > 1:
        raise NotImplementedError("PyTorch's batch_norm has no statistics for each position")
    if x.ndim == 1:
        raise NotImplementedError("PyTorch's batch_norm needs a channel axis")
    keep = case.get("momentum", 0.9)
    trains = trains_batch_norm(case)
    new_mean, new_var = mean.clone(), var.clone()
    y = functional.batch_norm(x, new_mean, new_var, s, b, trains, 1 - keep, case.get("epsilon", 1e-5))
    if not trains or x.numel() == 0:
        return [y, new_mean, new_var]
    n = x.numel() // x.shape[1]
    new_var = var * keep + (new_var - var * keep) * ((n - 1) / n)
    if len(case.wanted) < 4:
        return [y, new_mean, new_var]
    zero = mean.new_zeros(mean.shape)
    batch_mean, batch_var = zero.clone(), zero.clone()
    functional.batch_norm(x, batch_mean, batch_var, training=True, momentum=1.0)  # the batch's own statistics
    return [y, new_mean, new_var, batch_mean, batch_var * ((n - 1) / n)]


def _instance_norm(case: Case, x: Any, s: Any, b: Any) -> list[Any]:
    from torch.nn import functional

    return [functional.instance_norm(x, weight=s, bias=b, eps=case.get("epsilon", 1e-5))]


def _group_norm(case: Case, x: Any, s: Any, b: Any) -> list[Any]:
    from torch.nn import functional

    if s.shape[0] != x.shape[1]:
        raise NotImplementedError("PyTorch's group_norm has one scale and bias per channel, not per group")
    _refuse_stash_type(case, x)
    return [functional.group_norm(x, case.attributes["num_groups"], s, b, case.get("epsilon", 1e-5))]


def _layer_norm(case: Case, x: Any, s: Any, b: Any = None) -> list[Any]:
    import torch

    tail = x.shape[case.get("axis", -1) % x.ndim :]
    _refuse_wider_stash_type(s, tail)
    _refuse_stash_type(case, x)
    y, mean, inverse = torch.native_layer_norm(x, tail, s, b, case.get("epsilon", 1e-5))
    if len(case.file_outputs) > 1 and mean.dtype not in (torch.float32, torch.float64):
        raise NotImplementedError("for 16-bit x PyTorch returns mean and 1 / std in 16 bits")
    return [y, mean.float(), inverse.float()]


def _rms_norm(case: Case, x: Any, s: Any) -> list[Any]:
    from torch.nn import functional

    tail = x.shape[case.get("axis", -1) % x.ndim :]
    _refuse_wider_stash_type(s, tail)
    if s.dtype != x.dtype:
        raise NotImplementedError("PyTorch's rms_norm requires the same type for x and scale")
    _refuse_stash_type(case, x)
    return [functional.rms_norm(x, tail, s, case.get("epsilon", 1e-5))]


def _normalize(case: Case, x: Any) -> list[Any]:
    from torch.nn import functional

    return [functional.normalize(x, float(case.get("p", 2)), case.get("axis", -1))]


def _local_response_norm(case: Case, x: Any) -> list[Any]:
    from torch.nn import functional

    size, alpha = case.attributes["size"], case.get("alpha", 1e-4)
    mirrored = [1] if size % 2 == 0 else []
    y = functional.local_response_norm(x.flip(mirrored), size, alpha, case.get("beta", 0.75), case.get("bias", 1.0))
    return [y.flip(mirrored)]


CALLS: dict[str, Callable[..., list[Any]]] = {
    "BatchNormalization": _batch_norm,
    "InstanceNormalization": _instance_norm,
    "GroupNormalization": _group_norm,
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "LpNormalization": _normalize,
    "LRN": _local_response_norm,
}


def _refuse_wider_stash_type(scale: Any, tail: Any) -> None:
    if scale.shape != tail:
        raise NotImplementedError("PyTorch's scale must have the shape of the normalized axes")


def _refuse_stash_type(case: Case, x: Any) -> None:
    """Refuse a wider stash_type, because PyTorch always computes float64 in float64, and other types in float32."""
    if STASH[case.get("stash_type", 1)].itemsize > max(4, x.element_size()):
        raise NotImplementedError("PyTorch has no stash_type")


def to_tensor(array: Any) -> Any:
    """Turn a NumPy array into a PyTorch tensor."""
    import torch

    if array.dtype != bfloat16:
        return torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape))
    return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16).reshape(array.shape)


def to_array(tensor: Any) -> Any:
    """Turn a PyTorch tensor into a NumPy array."""
    import torch

    if tensor.dtype != torch.bfloat16:
        return tensor.numpy()
    return tensor.contiguous().view(torch.int16).numpy().view(bfloat16)
