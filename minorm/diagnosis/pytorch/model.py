"""TorchModel, with which a diagnosis runs a torch.nn.Module.

PyTorch's momentum is the share of the new statistics; a Norm stores the share of the old statistics. In the reference
pass, each call of batch_norm is replaced by a call without running statistics. So no module needs training mode, and no
module updates its statistics.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from minorm.diagnosis.pytorch import arrays
from minorm.diagnosis.pytorch.torch_steps import Watcher
from minorm.diagnosis.recording import See
from minorm.diagnosis.subject import fixed_layers
from minorm.tensor.tensor import Tensor


class TorchModel:
    """Runs a torch.nn.Module; if the module is a compiled one, runs the original module."""

    framework = "pytorch"

    def __init__(self, model: Any) -> None:
        self.torch: Any = sys.modules["torch"]
        self.model = getattr(model, "_orig_mod", model)
        tensors = [*self.model.parameters(), *self.model.buffers()]
        _check(self.model, tensors)
        self.device = tensors[0].device if tensors else "cpu"
        self.dtype = next((t.dtype for t in tensors if t.dtype.is_floating_point), None)
        self.batch_statistics = False  # True if layers with running statistics use batch statistics instead,
        self.kept: Collection[str] = ()  # except these layers
        modes = {name: module.training for name, module in self.model.named_modules() if _has_mode(module)}
        self.training = {name for name, training in modes.items() if training}
        self.frozen = modes.keys() - self.training if self.training else set()  # while other layers train

    @contextmanager
    def borrowed(self) -> Iterator[None]:
        """Restore modes, buffers and random numbers after the block."""
        training = [(module, module.training) for module in self.model.modules()]
        buffers = [(buffer, buffer.detach().clone()) for buffer in self.model.buffers()]
        try:
            with self.torch.no_grad(), arrays.random_kept():
                yield
        finally:
            for module, mode in training:
                module.training = mode
            with self.torch.no_grad():
                for buffer, before in buffers:
                    if not self.torch.equal(buffer, before):  # a layer changed it even in evaluation
                        buffer.copy_(before)

    def evaluation(self) -> None:
        """Switch to evaluation: layers use running statistics, and nothing is dropped."""
        self._leave_training()
        self.batch_statistics = False

    def reference(self, kept: Collection[str]) -> None:
        """Switch to evaluation, but let layers with running statistics normalize with those of the batch.

        The layers in `kept` keep using running statistics.
        """
        self._leave_training()
        self.batch_statistics, self.kept = True, kept

    def _leave_training(self) -> None:
        """Set evaluation mode. eval() cannot do this: an exported module refuses it, and a user may override it."""
        for module in self.model.modules():
            module.training = False

    def watched(self, see: See) -> AbstractContextManager[None]:
        """Call `see` for every step of the model during the block.

        `see` gets the same kind of Step as for minorm's modules.
        """
        kept = self.kept if self.batch_statistics else None
        return Watcher(self.model, see, self.tensor, kept, self.frozen).watching()

    def tensor(self, x: Tensor) -> Any:
        """Return x as PyTorch's tensor on the model's device; floats get the type of the model's parameters."""
        return arrays.tensor(x, self.device, self.dtype)

    def run(self, x: Tensor) -> Tensor:
        """Return the model's output for x.

        If the output has the attribute `logits`, return this; if there are several outputs, return the first.
        """
        try:
            y = self.model(self.tensor(x))
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise ValueError(f"diagnose: the model does not take images of shape {tuple(x.shape)}: {error}") from error
        y = getattr(y, "logits", y)
        y = next(iter(y.values())) if isinstance(y, dict) else y[0] if isinstance(y, (tuple, list)) else y
        if not arrays.is_tensor(y):
            raise TypeError(f"diagnose: the model returns a {type(y).__name__}; expected a tensor, or several")
        return Tensor(arrays.array(y))

    def drifting(self) -> set[str]:
        """Return the names of layers whose parameters are frozen, but whose running statistics training still moves."""
        modules = dict(self.model.named_modules())
        return {n for n in fixed_layers(self.model) & self.training if getattr(modules[n], "momentum", 0.0) != 0.0}

    def saved_in_training(self) -> set[str]:
        """Return an empty set. Only layers of an ONNX file can be saved in training mode."""
        return set()

    def ranks(self) -> dict[str, int]:
        """Return a dict from layers to the sizes of their process groups.

        In such a group, SyncBatchNorm shares statistics.
        """
        distributed = self.torch.distributed
        if not (distributed.is_available() and distributed.is_initialized()):
            return {}
        return {
            name: distributed.get_world_size(module.process_group)
            for name, module in self.model.named_modules()
            if hasattr(module, "process_group")
        }


def _has_mode(module: Any) -> bool:
    """Return whether the module behaves differently in training: it has running statistics, or is a dropout."""
    return arrays.is_tensor(getattr(module, "running_mean", None)) or "Dropout" in type(module).__name__


def _check(model: Any, tensors: list[Any]) -> None:
    """Raise TypeError if a module cannot be watched, and ValueError if a lazy module has no weights yet."""
    for name, module in model.named_modules():
        if any(cls.__name__ == "ScriptModule" for cls in type(module).__mro__):
            raise TypeError(
                f"diagnose: {name or 'model'} is a scripted module, whose layers cannot be watched; expected the "
                "module that torch.jit compiled"
            )
    if any(type(tensor).__name__.startswith("Uninitialized") for tensor in tensors):
        raise ValueError("diagnose: model has lazy layers without weights; expected one that has run once")
