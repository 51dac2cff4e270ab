"""What moves the weights: the optimizer, the learning rate's way, and the average of where the weights have been."""

from __future__ import annotations

import math
from typing import Any

from minorm import nn, optim
from minorm.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from minorm.training.settings import Settings


def make_optimizer(settings: Settings, model: nn.Module) -> Any:
    """The optimizer; weights decay, but not biases and the scales and biases of normalizations."""
    weights = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": weights, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}]
    groups = [group for group in groups if group["params"]]
    if settings.optimizer == "sgd":
        return optim.SGD(groups, lr=settings.lr, momentum=0.9, nesterov=True)
    return {"adam": optim.Adam, "adamw": optim.AdamW}[settings.optimizer](groups, lr=settings.lr)


def make_scheduler(settings: Settings, optimizer: Any, steps: int) -> Any:
    """The learning rate as a function of the steps done, of `steps` in all; None for a constant one.

    It rises over the warm-up's epochs; where there are none, onecycle rises for a quarter of the run.
    """
    schedules = optim.lr_scheduler
    warm = settings.warmup_epochs * (steps // settings.epochs)
    if settings.schedule == "onecycle":
        rise = warm / steps if warm else 0.25
        return schedules.OneCycleLR(optimizer, max_lr=settings.lr, total_steps=steps, pct_start=rise)
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

    A young average forgets faster: it would otherwise hold the first weights for a thousand steps. Running statistics
    are averaged as the weights are.
    """
    if not settings.ema:
        return None

    def average(averages: list[Any], latest: list[Any], n: Any) -> None:
        get_ema_multi_avg_fn(min(settings.ema, (1 + n) / (10 + n)))(averages, latest, n)

    return AveragedModel(model, multi_avg_fn=average, use_buffers=True)
