"""Running statistics of a whole model. precise_bn computes exact running statistics, and freeze_norm stops their
updates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from minorm import devices
from minorm.graph.grad_mode import no_grad
from minorm.nn.module import Module
from minorm.nn.norm.accumulation import Collected
from minorm.normalization.running import redirected
from minorm.support.argument_errors import checked, is_foreign, kind_of
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

AnyModule = TypeVar("AnyModule", bound=Module)


def norms_of(model: Module) -> list[Any]:
    """Return the layers whose running statistics change in training. Frozen layers are left out."""
    return [m for m in model.modules() if getattr(m, "has_running_stats", False) and not m.frozen]


@documented({}, model="the Module to change")
@checked
def freeze_norm(model: AnyModule) -> AnyModule:
    """Freezes every layer with running statistics, for fine-tuning with small batches. `train()` does not unfreeze a
    layer.

    A frozen layer normalizes with its running statistics and never changes them. The weight and bias of this layer get
    no gradient, but gradients still flow to the layer's input. The function calls `layer.freeze()`, and
    `layer.unfreeze()` reverses this. Normalizations without running statistics (GroupNorm, LayerNorm) work the same in
    both modes and are still trained. Returns the model.

    Example:
        >>> model = nn.utils.freeze_norm(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)))
        >>> [name for name, p in model.named_parameters() if p.requires_grad]
        ['0.weight', '0.bias']
    """
    _check_model("freeze_norm", model)
    for layer in norms_of(model):
        layer.freeze()
    return model


@documented(
    {},
    model="the Module whose statistics are measured",
    loader="batches x or (x, ...); only x is used",
    num_iters="the number of batches to take; None takes all",
    layerwise=(
        "False: one pass over the data, in which every norm normalizes with the batch, as in training. True: one pass "
        "for each norm, in which all earlier norms already have their final statistics. The norm's input is then the "
        "same as in evaluation, whatever the batch size. True takes longer, and needs a loader that can be read "
        "several times"
    ),
)
@checked
def precise_bn(model: Module, loader: Iterable[Any], num_iters: int | None = None, layerwise: bool = False) -> None:
    """running_mean, running_var = the exact mean and population variance of each layer's input over the loader's data.

    The moments of the batches are merged, not averaged, so a smaller last batch has less weight. All other layers are
    in evaluation mode, since dropout would change the variance. After the call, training mode, momentum, parameters and
    num_batches_tracked are the same as before. Frozen layers, and layers that no data reaches, keep their statistics.
    In a distributed run every rank calls precise_bn with its own data. Layers that share statistics (SyncBatchNorm)
    then get the statistics over all ranks. After an error the statistics are unchanged. Raises ValueError if the model
    has no running statistics, or if the loader has no batch.

    Example:
        >>> model = nn.Sequential(nn.BatchNorm1d(1))
        >>> nn.utils.precise_bn(model, [mn.tensor([[1.0], [2.0]]), mn.tensor([[3.0], [4.0], [5.0]])])
        >>> model[0].running_mean
        tensor([3.])

    Wu and Johnson 2021, arXiv:2105.07576, section 3; Chan, Golub and LeVeque 1979.
    """
    _check_model("precise_bn", model)
    if num_iters is not None and (isinstance(num_iters, bool) or not isinstance(num_iters, int) or num_iters < 1):
        raise ValueError(f"precise_bn: num_iters={num_iters!r}; expected an int of at least 1, or None")
    if not isinstance(loader, Iterable):
        raise TypeError(f"precise_bn: loader is a {kind_of(loader)}; expected batches, such as a DataLoader")
    if layerwise and iter(loader) is loader:
        raise ValueError(
            "precise_bn: loader can be read only once, and layerwise=True reads it once for each norm; expected a list "
            "or a DataLoader"
        )
    norms = norms_of(model)
    if not norms:
        raise ValueError(
            "precise_bn: the model has no layer whose running statistics could change; expected a BatchNorm, or an "
            "InstanceNorm with track_running_stats=True, that is not frozen"
        )
    modes = [(module, module.training) for module in model.modules()]
    before = [(b, b.detach().clone().array) for norm in norms for b in norm.buffers()]
    try:
        for group in _in_order(model, norms, loader) if layerwise else [norms]:
            _measure(model, group, loader, num_iters)
    except BaseException:
        for buffer, array in before:
            with devices.on_device_of(array):
                buffer.array[...] = array
        raise
    finally:
        for module, training in modes:
            module.training = training


def _in_order(model: Module, norms: list[Any], loader: Iterable[Any]) -> list[list[Any]]:
    """Return the layers `norms`, each in a separate list, in the order in which data reaches the layers."""
    seen = list(_collected(model, norms, loader, 1).entries)
    owners = {id(buffer): norm for norm in reversed(norms) for buffer in norm.buffers()}
    return [[owners[key]] for key in seen]


def _measure(model: Module, norms: list[Any], loader: Iterable[Any], num_iters: int | None) -> None:
    """Set the running statistics of the layers `norms` to the statistics of the data. All other layers are in
    evaluation mode.
    """
    for entry in _collected(model, norms, loader, num_iters).entries.values():
        entry.set()


def _collected(model: Module, norms: list[Any], loader: Iterable[Any], num_iters: int | None) -> Collected:
    for module in model.modules():
        module.training = False
    for norm in norms:
        norm.training = True
    found, batches = Collected(model), 0
    device = next((t.device for t in (*model.parameters(), *model.buffers())), "cpu")
    with no_grad(), redirected(found, found.owns):
        for x in _inputs(islice(loader, num_iters)):
            model(x.to(device))
            batches += 1
    if not batches:
        raise ValueError("precise_bn: loader gives no batch; expected at least one")
    found.expect_variance("precise_bn")
    return found


def _inputs(batches: Iterable[Any]) -> Iterator[Tensor]:
    """Yield x of every batch."""
    for batch in batches:
        x = batch[0] if isinstance(batch, (tuple, list)) and batch else batch
        if isinstance(x, np.ndarray):
            x = Tensor(x)
        if not isinstance(x, Tensor):
            fix = "; convert it to a minorm Tensor" if is_foreign(x) else ""
            raise TypeError(f"precise_bn: a batch begins with a {kind_of(x)}; expected a Tensor x, or (x, ...){fix}")
        yield x


def _check_model(operation: str, model: Any) -> None:
    if not isinstance(model, Module):
        raise TypeError(f"{operation}: model is a {kind_of(model)}; expected an nn.Module")
