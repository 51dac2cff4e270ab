"""Runs the model of a diagnosis: a Module of minorm or of PyTorch (pytorch/model.py). Both kinds report Steps."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from minorm.diagnosis import modes
from minorm.diagnosis.recording import See, holds_statistics, watched
from minorm.nn import Module
from minorm.tensor.tensor import Tensor


class Subject(Protocol):
    """A model that can be run in two modes, watched and restored.

    framework    "minorm" or "pytorch"; it decides how fixes are worded and what momentum means
    """

    framework: str

    def borrowed(self) -> AbstractContextManager[None]:
        """Inside the `with` block, the caller may set any mode and run the model. Afterwards the model is restored."""

    def evaluation(self) -> None:
        """Switch to evaluation: layers use running statistics, and nothing is dropped."""

    def reference(self, kept: Collection[str]) -> None:
        """Switch to evaluation, but let layers with running statistics normalize with those of the batch.

        The layers in `kept` keep using running statistics.
        """

    def watched(self, see: See) -> AbstractContextManager[None]:
        """Call `see` for every step that the model runs during the block."""

    def run(self, x: Tensor) -> Tensor:
        """Return the model's output."""

    def drifting(self) -> set[str]:
        """Return the layers whose scale and bias do not train, while training moves their running statistics."""

    def saved_in_training(self) -> set[str]:
        """Return the layers that are in training mode in the model's file."""

    def ranks(self) -> dict[str, int]:
        """Map each layer with a process group to the number of ranks that share the layer's statistics."""


def fixed_layers(model: Any) -> set[str]:
    """Return the names of modules that have parameters, but none that requires grad; `model` may be PyTorch's."""
    trains: dict[str, bool] = {}
    for key, parameter in model.named_parameters():
        name = key.rpartition(".")[0]
        trains[name] = trains.get(name, False) or parameter.requires_grad
    return {name for name, some in trains.items() if not some}


class OurModel:
    """Runs a Module of minorm, such as a loaded ONNX graph."""

    framework = "minorm"

    def __init__(self, model: Module) -> None:
        self.model = model
        self.device = next((p.device for p in (*model.parameters(), *model.buffers())), "cpu")

    @contextmanager
    def borrowed(self) -> Iterator[None]:
        """After the block, restore modes, statistics, random numbers and the batch size that a file declares."""
        inputs = [entry for entry in getattr(self.model, "inputs", ()) if entry.shape]
        declared = [entry.shape for entry in inputs]
        try:
            for entry in inputs:  # a file may fix a batch of 1, which has no useful statistics
                entry.shape = ("batch", *entry.shape[1:])
            with modes.borrowed(self.model):
                yield
        finally:
            for entry, shape in zip(inputs, declared, strict=True):
                entry.shape = shape

    def evaluation(self) -> None:
        """Switch to evaluation: layers use running statistics, and nothing is dropped."""
        modes.evaluation(self.model)

    def reference(self, kept: Collection[str]) -> None:
        """Switch to evaluation, but let layers with running statistics normalize with those of the batch.

        The layers in `kept` keep using running statistics.
        """
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
        """Return the layers whose parameters require no grad, but which are in training mode and not frozen."""
        fixed = fixed_layers(self.model)
        return {
            name
            for name, module in self.model.named_modules()
            if name in fixed and holds_statistics(module) and module.training and not module.frozen
        }

    def saved_in_training(self) -> set[str]:
        """Return the layers that are in training mode, if the model is a loaded graph.

        For any other model, return an empty set.
        """
        if not hasattr(self.model, "input_names"):
            return set()
        modules = self.model.named_modules()
        return {name for name, m in modules if holds_statistics(m) and m.training and not m.frozen}

    def ranks(self) -> dict[str, int]:
        """Map the name of each layer with a process group to the size of this group."""
        groups = {name: getattr(module, "process_group", None) for name, module in self.model.named_modules()}
        return {name: int(group.size) for name, group in groups.items() if group is not None}
