"""Texts that the docstrings of optimizers and schedules share: descriptions of arguments, and the example."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from minorm.support.documented import documented

AnyClass = TypeVar("AnyClass", bound=type)

OPTIMIZER = {
    "params": 'Tensors, as model.parameters() gives them; or dicts {"params": Tensors, "lr": ...}, one for each group',
    "lr": "the learning rate, by which each step is multiplied; at least 0",
    "betas": "(beta1, beta2), the shares of the old averages m and v that are kept, each from 0 to below 1",
    "eps": "added to the root, so that nothing is divided by 0",
    "weight_decay": "how much of p is added to the gradient g: it pulls p towards 0",
    "amsgrad": "True divides by the largest v so far instead of the latest",
    "momentum": "the share of the old direction that is kept, 0 to 1",
    "maximize": "True maximizes the loss instead of minimizing it",
    "foreach": "accepted, without effect; in PyTorch it chooses the code that computes the same step",
    "capturable": "accepted, without effect; in PyTorch it chooses the code that computes the same step",
    "fused": "accepted, without effect; in PyTorch it chooses the code that computes the same step",
    "differentiable": "True is a NotImplementedError, because the graph does not record steps",
    "decoupled_weight_decay": "True shrinks p by lr * weight_decay before the step, and leaves g alone",
}

SCHEDULE = {
    "optimizer": "the optimizer whose groups get the rates",
    "gamma": "the number by which the rate is multiplied",
    "factor": "the number by which the rate is multiplied",
    "milestones": "the values of t at which the rate changes, in any order",
    "total_iters": "the t at which the rate stops changing",
    "eta_min": "the lowest rate",
    "last_epoch": "the t to continue from, for groups that have an 'initial_lr'; -1 starts afresh",
    "lr_lambda": "a function of t, or a list of them, one for each group",
    "anneal_strategy": 'the way between two rates: "cos" or "linear"',
    "cycle_momentum": "True moves the momentum, in Adam beta1, against the rate; False leaves it",
    "base_momentum": "the lowest momentum, where the rate is highest",
    "max_momentum": "the highest momentum, where the rate is lowest",
}


def optimizer(lr: float, after: str, paper: str = "", **own: str) -> Callable[[AnyClass], AnyClass]:
    """Complete an optimizer's docstring. The docstring's example minimizes p * p with one step at rate `lr`, from
    p = [1, -2] to `after`.
    """
    return documented(OPTIMIZER, base=_a_step, words={"lr": str(lr), "after": after, "paper": paper}, **own)


def schedule(given: str, rates: str, paper: str = "", **own: str) -> Callable[[AnyClass], AnyClass]:
    """Complete a schedule's docstring. The docstring's example makes the schedule with the arguments `given`, and shows
    the first five `rates`.
    """
    return documented(SCHEDULE, base=_five_steps, words={"given": given, "rates": rates, "paper": paper}, **own)


def _a_step() -> None:
    """
    Example:
        >>> p = nn.Parameter(mn.tensor([1.0, -2.0]))
        >>> optimizer = mn.optim.{name}([p], lr={lr})
        >>> (p * p).sum().backward()  # a gradient of 2 p
        >>> optimizer.step()
        >>> p.data
        tensor({after})

    {paper}
    """


def _five_steps() -> None:
    """
    Example:
        >>> optimizer = mn.optim.SGD([nn.Parameter(mn.zeros(1))], lr=1.0)
        >>> scheduler = mn.optim.lr_scheduler.{name}({given})
        >>> rates = []
        >>> for epoch in range(5):
        ...     rates += [round(rate, 3) for rate in scheduler.get_last_lr()]
        ...     scheduler.step()
        >>> rates
        {rates}

    {paper}
    """
