"""Converts tensors of PyTorch to arrays and back.

Recognizes modules and tensors of PyTorch without importing PyTorch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from minorm.devices.dtypes import bfloat16
from minorm.tensor.tensor import Tensor


def is_module(model: Any) -> bool:
    """Return whether the value is a torch.nn.Module."""
    return _is_a(model, "torch.nn.modules.module", "Module")


def is_tensor(value: Any) -> bool:
    """Return whether the value is a torch.Tensor."""
    return _is_a(value, "torch", "Tensor")


def _is_a(value: Any, module: str, name: str) -> bool:
    return any((cls.__module__, cls.__name__) == (module, name) for cls in type(value).__mro__)


def array(tensor: Any) -> Any:
    """Return a copy of the tensor as a NumPy array of the same type, which may be bfloat16."""
    torch: Any = sys.modules["torch"]
    there = tensor.detach().cpu()
    if there.dtype == torch.bfloat16:
        return there.float().numpy().astype(bfloat16)
    return np.array(there.numpy())


def tensor(x: Tensor, device: Any, dtype: Any) -> Any:
    """Return our Tensor as PyTorch's tensor; floats are converted to `dtype`, unless it is None."""
    torch: Any = sys.modules["torch"]
    given = x.detach().cpu().array
    found = torch.from_numpy(np.array(given, np.float32 if given.dtype == bfloat16 else given.dtype))
    if found.dtype.is_floating_point and dtype is not None:
        found = found.to(dtype)
    return found.to(device)


def fill(model: Any, found: Mapping[str, Any], where: str) -> None:
    """Copy NumPy arrays into a module's state by name; if they do not fit, copy nothing and raise ValueError.

    num_batches_tracked may be missing, because older files lack it. Errors call the arrays `where`, which is usually
    the name of a file.
    """
    state = model.state_dict()
    missing = [key for key in state if key not in found and not key.endswith("num_batches_tracked")]
    unknown = [key for key in found if key not in state]
    shapes = [
        f"{key} {tuple(array.shape)} there, {tuple(state[key].shape)} here"
        for key, array in found.items()
        if key in state and tuple(array.shape) != tuple(state[key].shape)
    ]
    for said, names in (("lacks", missing), ("has, and the model lacks,", unknown), ("has in another shape", shapes)):
        if names:
            more = f" and {len(names) - 4:,} more" if len(names) > 4 else ""
            raise ValueError(f"{where} {said} {'; '.join(names[:4])}{more}; expected the tensors of the model")
    torch: Any = sys.modules["torch"]
    with torch.no_grad():
        for key, array in found.items():
            state[key].copy_(tensor(Tensor(array), state[key].device, None))


@contextmanager
def random_kept() -> Iterator[None]:
    """Restore PyTorch's random generators after the block. Do nothing if PyTorch is not loaded."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "random"):
        yield
        return
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() and torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=devices):
        yield
