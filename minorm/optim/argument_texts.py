"""What the arguments of optimizers and schedules mean: texts for `documented`."""

from __future__ import annotations

OPTIMIZER = {
    "params": 'Tensors, as model.parameters() gives them; or dicts {"params": Tensors, "lr": ...}, a group each',
    "lr": "the learning rate: how large a step is, at least 0",
    "betas": "(beta1, beta2), the shares of the old averages m and v that are kept, each from 0 to below 1",
    "eps": "added to the root, so that nothing is divided by 0",
    "weight_decay": "how much of p is added to the gradient g: it pulls p towards 0",
    "amsgrad": "True divides by the largest v so far instead of the latest",
    "momentum": "the share of the old direction that is kept, 0 to 1",
    "maximize": "True climbs instead of descending",
    "foreach": "taken, without effect: how PyTorch computes the same step",
    "capturable": "taken, without effect: how PyTorch computes the same step",
    "fused": "taken, without effect: how PyTorch computes the same step",
    "differentiable": "True is a NotImplementedError: steps are not recorded",
    "decoupled_weight_decay": "True shrinks p by lr * weight_decay before the step, and leaves g alone",
}

SCHEDULE = {
    "optimizer": "whose groups get the rates",
    "gamma": "what the rate is multiplied with",
    "factor": "what the rate is multiplied with",
    "milestones": "the t, in any order, at which the rate changes",
    "total_iters": "the t from which on the rate stays",
    "eta_min": "the lowest rate",
    "last_epoch": "the t to go on from, for groups that have an 'initial_lr'; -1 starts afresh",
    "lr_lambda": "a function of t, or a list of them, one for each group",
    "anneal_strategy": 'the way between two rates: "cos" or "linear"',
    "cycle_momentum": "True moves the momentum, in Adam beta1, against the rate; False leaves it",
    "base_momentum": "the lowest momentum, where the rate is highest",
    "max_momentum": "the highest momentum, where the rate is lowest",
}
