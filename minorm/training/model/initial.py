"""Load initial weights from a file: each tensor whose name and shape the model has too. List all other tensors.

If the file's model has another number of classes, its last layer has other shapes. The last layer of the new model then
keeps its random weights. Only arrays are read: code in the file is not run, and the code of the model that the file
names is not run.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minorm.data.npz import read_arrays
from minorm.devices import dtypes
from minorm.nn import Module
from minorm.serialization import checkpoint, opening
from minorm.tensor.tensor import Tensor
from minorm.training.files.run_folder import weights_file
from minorm.training.model import onnx_graph
from minorm.training.model.own_code import is_graph

Array = Any
WRAPPED = "module."  # DistributedDataParallel and AveragedModel put it before each name
PARTS = ("model", "state_dict", "model_state_dict")  # names of the weights in a checkpoint


@dataclass(frozen=True)
class Initial:
    """A model's initial weights: their file and its SHA-256, how many tensors were loaded, and which were not.

    reshaped  names of tensors whose shapes in the file and the model differ, with both shapes
    missing   names of tensors of the model that the file lacks
    unused    names of tensors of the file that the model lacks
    notes     further sentences for the user
    """

    file: str
    sha256: str
    taken: int
    reshaped: list[str]
    missing: list[str]
    unused: list[str]
    notes: list[str] = field(default_factory=list)

    def sentences(self) -> list[str]:
        """Return the lines that tell the user about the initial weights."""
        lines = [f"begins with {self.taken:,} tensors of {self.file}", *self.notes]
        for said, names in (
            ("initialized anew, because the file has another shape", self.reshaped),
            ("initialized anew, because the file lacks them", self.missing),
            ("in the file, but not in this model", self.unused),
        ):
            if names:
                lines.append(f"{said}: {', '.join(names)}")
        return lines


def begin(model: Module, given: str, anew: Collection[str] = (), notes: Sequence[str] = ()) -> Initial:
    """Load the tensors of a file, or of a run's folder, that fit the model by name and shape.

    anew   names of tensors that are not loaded even if they fit
    notes  further sentences for the user

    Raises ValueError, without changing the model, if no parameter would be loaded.
    """
    path = weights_file(given)
    found, own = arrays_by_name(path), model.state_dict()
    fitting, reshaped = {}, []
    for name, tensor in own.items():
        if name not in found or name in anew:
            continue
        if found[name].shape == tuple(tensor.shape) and _is_float(found[name]) == _is_float(tensor):
            fitting[name] = found[name].astype(tensor.dtype)
        else:
            reshaped.append(f"{name} {found[name].shape} in the file, {tuple(tensor.shape)} in the model")
    if not any(name in fitting for name, _ in model.named_parameters()):
        raise ValueError(f"init: no weight of {path} fits the model: the file has {_some(found)}; the model has "
                         f"{_some(own)}")  # fmt: skip
    model.load_state_dict(fitting, strict=False)
    missing, unused = [name for name in own if name not in found], [name for name in found if name not in own]
    return Initial(os.path.basename(path), _digest(path), len(fitting), reshaped, missing, unused, [*notes])


def arrays_by_name(path: str, command: str = "init") -> dict[str, Array]:
    """Return a file's arrays by name; raise ValueError, which names `command`, if the file has no arrays by name."""
    if is_graph(path):
        return onnx_graph.arrays(path)
    state: Any = read_arrays(path) if path.endswith(".npz") else checkpoint.load(path)
    if isinstance(state, Mapping):
        state = next((state[part] for part in PARTS if isinstance(state.get(part), Mapping)), state)
    items = state.items() if isinstance(state, Mapping) else ()
    found = {name: _array(value) for name, value in items if isinstance(name, str)}
    arrays = {name: array for name, array in found.items() if array is not None}
    if not arrays:
        raise ValueError(f"{command}: {path} has no tensors by name; expected the weights of a model")
    if all(name.startswith(WRAPPED) for name in arrays):
        return {name.removeprefix(WRAPPED): array for name, array in arrays.items()}
    return arrays


def _array(value: Any) -> Array | None:
    return value.numpy() if isinstance(value, Tensor) else value if isinstance(value, np.ndarray) else None


def _is_float(tensor: Any) -> bool:
    return dtypes.is_float(tensor.dtype)


def _some(state: Mapping[str, Any]) -> str:
    """Return the first three names with their shapes, as text."""
    said = [f"{name} {tuple(tensor.shape)}" for name, tensor in list(state.items())[:3]]
    return ", ".join(said) + (f" and {len(state) - 3:,} more" if len(state) > 3 else "")


def _digest(path: str) -> str:
    with opening.regular(path, "init") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
