"""Record BatchNorm's running statistics and the statistics of every training batch, to plot or examine them.

A layer stores only its running statistics, but the batch's statistics can be computed from them. The layer updates

    running = running * momentum + batch * (1 - momentum)

in each step, so batch = (new - old * momentum) / (1 - momentum). So watching needs no hook: it reads the buffers after
each step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.nn import Module
from minorm.support.documented import documented
from minorm.training.callbacks import Callback, CallbackState


@documented({}, model="the model whose layers with running statistics are followed")
class BatchNormWatch(Callback):
    """Records (mean, var) after each step for every layer of `model` that has running statistics.

    Call `step()` after each step, or pass the watch to a training as a callback.

        layers          the names of these layers
        running(name)   the running statistics after each step: (mean, var), NumPy arrays of shape (steps, C)
        batch(name)     the statistics of each step's batch: (mean, var), NumPy arrays of shape (steps, C) and type
                        float64

    Example:
        >>> model = nn.BatchNorm1d(1)
        >>> watch = mn.training.BatchNormWatch(model)
        >>> y = model(mn.tensor([[1.0], [3.0]]))
        >>> watch.step()
        >>> watch.batch(watch.layers[0])[0].round(4).tolist()
        [[2.0]]
    """

    def __init__(self, model: Module) -> None:
        self._modules = {
            name: module
            for name, module in model.named_modules()
            if getattr(module, "running_mean", None) is not None and getattr(module, "momentum", None) is not None
        }
        self._seen: dict[str, list[tuple[Any, Any]]] = {name: [] for name in self._modules}
        self.step()  # the statistics before the first step

    @property
    def layers(self) -> list[str]:
        """The names of the layers that are watched, in the model's order."""
        return list(self._modules)

    def momentum(self, name: str) -> float:
        """Return the layer's momentum: the weight of the old running value in the new one."""
        return float(self._modules[name].momentum)

    def step(self) -> None:
        """Record the current running statistics."""
        for name, module in self._modules.items():
            mean, var = module.running_mean, module.running_var
            self._seen[name].append((mean.detach().clone(), var.detach().clone()))  # on a GPU this does not wait

    def on_train_batch_end(self, state: CallbackState) -> None:  # noqa: ARG002  it looks at the buffers
        """Call `step` when the watch is a callback."""
        self.step()

    def running(self, name: str) -> tuple[Any, Any]:
        """Return (mean, var), the running statistics after each step."""
        means, variances = self._history(name)
        return means[1:], variances[1:]

    def batch(self, name: str) -> tuple[Any, Any]:
        """Return (mean, var), the statistics of each step's batch."""
        momentum = self.momentum(name)
        means, variances = (values.astype(np.float64) for values in self._history(name))
        return _batches(means, momentum), _batches(variances, momentum)

    def _history(self, name: str) -> tuple[Any, Any]:
        means, variances = zip(*self._seen[name], strict=True)
        return np.stack([t.cpu().numpy() for t in means]), np.stack([t.cpu().numpy() for t in variances])


def _batches(running: Any, momentum: float) -> Any:
    return (running[1:] - running[:-1] * momentum) / (1 - momentum)
