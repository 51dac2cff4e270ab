"""Make the parts that change weights: optimizer, learning rate schedule, moving average, and int8 rounding (`qat`)."""

from __future__ import annotations

import math
from typing import Any

from minorm import nn, optim
from minorm.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from minorm.quantization import QATModel, freeze_bn_stats, get_default_qat_qconfig, prepare_qat
from minorm.tensor.creation import zeros
from minorm.training.model.running_order import Layers
from minorm.training.settings import Settings

QAT_FROZEN_SHARE = 0.25  # of the epochs of a run with `qat`, the last ones


def make_optimizer(settings: Settings, model: nn.Module, layers: Layers | None = None) -> Any:
    """Return the optimizer. Weights decay, but biases and the scales of normalizations do not decay.

    With `layer_decay`, the first group has the head's parameters. The farther a layer is from the head, the smaller its
    learning rate.
    """
    by_depth = [list(model.parameters())] if layers is None or settings.layer_decay == 1 else layers.by_depth()
    groups: list[dict[str, Any]] = []
    for depth, parameters in enumerate(by_depth):
        rate = {} if depth == 0 else {"lr": settings.lr * settings.layer_decay**depth}
        weights, others = [p for p in parameters if p.ndim > 1], [p for p in parameters if p.ndim <= 1]
        groups += [
            {"params": weights, "weight_decay": settings.weight_decay, **rate},
            {"params": others, "weight_decay": 0.0, **rate},
        ]
    groups = [group for group in groups if group["params"]]
    if settings.optimizer == "sgd":
        return optim.SGD(groups, lr=settings.lr, momentum=0.9, nesterov=True)
    return {"adam": optim.Adam, "adamw": optim.AdamW}[settings.optimizer](groups, lr=settings.lr)


def make_scheduler(settings: Settings, optimizer: Any, steps: int) -> Any:
    """Return the schedule of the learning rate over all `steps` steps; return None for a constant rate.

    The rate rises over the warm-up's epochs. If there is no warm-up, the schedule onecycle rises for a quarter of the
    run. The epochs in which all layers but the head are frozen have one schedule, and the epochs after them have a
    second schedule, like a second run. The warm-up of the frozen epochs ends before the last frozen epoch, so a single
    frozen epoch has no warm-up.
    """
    epoch, frozen, constant = steps // settings.epochs, settings.frozen_epochs, optim.lr_scheduler.ConstantLR
    rates = [group["lr"] for group in optimizer.param_groups]
    if not 0 < frozen < settings.epochs:
        return _one_schedule(settings, optimizer, rates, steps, settings.warmup_epochs * epoch)
    warm = min(settings.warmup_epochs, frozen - 1)
    first = _one_schedule(settings, optimizer, rates, frozen * epoch, warm * epoch)
    rest = _one_schedule(settings, optimizer, rates, steps - frozen * epoch, settings.warmup_epochs * epoch)
    if first is None and rest is None:
        return None
    both = [part or constant(optimizer, 1.0) for part in (first, rest)]
    return optim.lr_scheduler.SequentialLR(optimizer, both, [frozen * epoch])


def _one_schedule(settings: Settings, optimizer: Any, rates: list[float], steps: int, warm: int) -> Any:
    """Return a schedule of `steps` steps that rises to `rates` in `warm` steps; return None for a constant rate."""
    schedules = optim.lr_scheduler
    if settings.schedule == "onecycle":
        rise = warm / steps if warm else 0.25
        return schedules.OneCycleLR(optimizer, max_lr=rates, total_steps=steps, pct_start=rise)
    rest = steps - warm
    main: Any = None
    if settings.schedule == "step":  # a tenth after each third
        main = schedules.StepLR(optimizer, step_size=math.ceil(rest / 3), gamma=0.1)
    elif settings.schedule == "cosine":
        main = schedules.CosineAnnealingLR(optimizer, T_max=rest)
    if not warm:
        return main
    rising = schedules.LinearLR(optimizer, start_factor=1 / warm, total_iters=warm)
    return schedules.SequentialLR(optimizer, [rising, main or schedules.ConstantLR(optimizer, 1.0)], [warm])


def averaged(settings: Settings, model: nn.Module) -> AveragedModel | None:
    """average = d * average + (1 - d) * weights after each step, with d = min(ema, (1 + n) / (10 + n)) after n steps.

    d is smaller in the first steps, because the average would otherwise keep the first weights for a thousand steps.
    Running statistics are averaged in the same way.
    """
    if not settings.ema:
        return None

    def average(averages: list[Any], latest: list[Any], n: Any) -> None:
        get_ema_multi_avg_fn(min(settings.ema, (1 + n) / (10 + n)))(averages, latest, n)

    return AveragedModel(model, multi_avg_fn=average, use_buffers=True)


def prepared(settings: Settings, model: nn.Module, channels: int, size: int) -> nn.Module:
    """Return the model that is trained. With `settings.qat`, it rounds values as the later int8 model does."""
    if settings.qat == "none":
        return model
    device = next(model.parameters()).device
    example = zeros(2, channels, size, size, device=device)
    return prepare_qat(model, example, get_default_qat_qconfig(settings.qat), inplace=True)


def begin_epoch(model: nn.Module, epoch: int, epochs: int) -> None:
    """Prepare the model for an epoch, counted from 0.

    In the last quarter of the epochs, a model with `qat` is prepared for `convert`: BatchNorm normalizes with its
    running statistics, and these statistics and the scales of activations stay constant.
    """
    if isinstance(model, QATModel) and epoch >= first_frozen(epochs):
        freeze_bn_stats(model)
        model.freeze_observers()


def first_frozen(epochs: int) -> int:
    """Return the first epoch with frozen statistics, counted from 0. Activations get their scales before this epoch."""
    return max(1, math.ceil(epochs * (1 - QAT_FROZEN_SHARE)))


def is_ready(model: Any) -> bool:
    """Return whether `convert` can make an int8 model of `model`."""
    return isinstance(model, QATModel) and model.has_scales
