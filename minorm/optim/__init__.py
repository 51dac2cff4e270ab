"""Optimizers and learning-rate schedules, with PyTorch's names, arguments and state."""

from minorm.optim import lr_scheduler
from minorm.optim.adam import Adam, AdamW
from minorm.optim.optimizer import Optimizer
from minorm.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "lr_scheduler"]
