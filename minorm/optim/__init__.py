"""Optimizers and learning-rate schedules, with PyTorch's names, arguments and state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minorm.optim.adam import Adam, AdamW
from minorm.optim.optimizer import Optimizer
from minorm.optim.sgd import SGD
from minorm.support import lazy

# Names that are loaded on first use, by the module that defines them.
LATER = {
    "adam_variants": "Adamax LAMB NAdam RAdam",
    "lbfgs": "LBFGS",
    "muon": "Muon",
    "per_element": "Adadelta Adagrad Lion RMSprop",
    "range_test": "RangeTest lr_finder",
    "lr_scheduler": "",
    "swa_utils": "",
}
__getattr__, __dir__ = lazy.names(__name__, LATER)

if TYPE_CHECKING:
    from minorm.optim import lr_scheduler, swa_utils
    from minorm.optim.adam_variants import LAMB, Adamax, NAdam, RAdam
    from minorm.optim.lbfgs import LBFGS
    from minorm.optim.muon import Muon
    from minorm.optim.per_element import Adadelta, Adagrad, Lion, RMSprop
    from minorm.optim.range_test import RangeTest, lr_finder

__all__ = [
    "LAMB",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Lion",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "RangeTest",
    "lr_finder",
    "lr_scheduler",
    "swa_utils",
]
