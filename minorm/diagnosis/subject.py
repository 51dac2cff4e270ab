"""Runs the model of a diagnosis: a Module of minorm, or one of PyTorch (pytorch/model.py). Both show the same Steps."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from minorm.diagnosis import modes
from minorm.diagnosis.recording import See, holds_statistics, watched
from minorm.nn import Module
from minorm.tensor.tensor import Tensor


class Subject(Protocol):
    """A model that can be run in two modes, watched, and left as it was.

    framework    "minorm" or "pytorch": whose words the fixes use, and whose momentum a layer has
    """

    framework: str

    def borrowed(self) -> AbstractContextManager[None]:
        """Let the block put the model into any mode and run it; restore the model afterwards."""

    def evaluation(self) -> None:
        """Switch to running statistics, without dropout."""

    def reference(self, kept: Collection[str]) -> None:
        """Do the same, but let layers with running statistics take those of the batch, except the layers `kept`."""

    def watched(self, see: See) -> AbstractContextManager[None]:
        """Call `see` for every step that the model runs inside the block."""

    def run(self, x: Tensor) -> Tensor:
        """Return the model's output."""

    def drifting(self) -> set[str]:
        """Return the layers whose scale and bias do not train, while training moves their running statistics."""

    def saved_in_training(self) -> set[str]:
        """Return the layers of a file whose nodes are in training mode."""

    def ranks(self) -> dict[str, int]:
        """How many ranks share the statistics of each layer that has a process group."""


def fixed_layers(model: Any) -> set[str]:
    """Return the modules with parameters of which none requires grad; of PyTorch's too."""
    trains: dict[str, bool] = {}
    for key, parameter in model.named_parameters():
        name = key.rpartition(".")[0]
        trains[name] = trains.get(name, False) or parameter.requires_grad
    return {name for name, some in trains.items() if not some}


class OurModel:
    """A Module of minorm, which a loaded ONNX graph is too."""

    framework = "minorm"

    def __init__(self, model: Module) -> None:
        self.model = model
        self.device = next((p.device for p in (*model.parameters(), *model.buffers())), "cpu")

    @contextmanager
    def borrowed(self) -> Iterator[None]:
        """Restore modes, statistics and random numbers after the block, and the batch size that a file declares."""
        inputs = [entry for entry in getattr(self.model, "inputs", ()) if entry.shape]
        declared = [entry.shape for entry in inputs]
        try:
            for entry in inputs:  # a file may fix a batch of 1, of which no statistics can be taken
                entry.shape = ("batch", *entry.shape[1:])
            with modes.borrowed(self.model):
                yield
        finally:
            for entry, shape in zip(inputs, declared, strict=True):
                entry.shape = shape

    def evaluation(self) -> None:
        """Switch to running statistics, without dropout."""
        modes.evaluation(self.model)

    def reference(self, kept: Collection[str]) -> None:
        """Let layers with running statistics take those of the batch, except the layers `kept`."""
        modes.reference(self.model, kept)

    def watched(self, see: See) -> AbstractContextManager[None]:
        """Call `see` for every step."""
        return watched(self.model, see)

    def run(self, x: Tensor) -> Tensor:
        """Return the first output."""
        try:
            y = self.model(x.to(self.device))
        except (ValueError, TypeError) as error:
            raise type(error)(f"diagnose: the model does not take images of shape {tuple(x.shape)}: {error}") from error
        first: Tensor = y[0] if isinstance(y, (tuple, list)) else y
        return first

    def drifting(self) -> set[str]:
        """Return the layers in training mode that are not frozen, with parameters that require no grad."""
        fixed = fixed_layers(self.model)
        return {
            name
            for name, module in self.model.named_modules()
            if name in fixed and holds_statistics(module) and module.training and not module.frozen
        }

    def saved_in_training(self) -> set[str]:
        """Return the layers of a loaded graph in training mode: `export` writes them so, and `load` reads them so."""
        if not hasattr(self.model, "input_names"):
            return set()
        modules = self.model.named_modules()
        return {name for name, m in modules if holds_statistics(m) and m.training and not m.frozen}

    def ranks(self) -> dict[str, int]:
        """Return the size of each layer's process group, by layer."""
        groups = {name: getattr(module, "process_group", None) for name, module in self.model.named_modules()}
        return {name: int(group.size) for name, group in groups.items() if group is not None}
