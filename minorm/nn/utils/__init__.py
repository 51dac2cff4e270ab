"""Tools for layers: clip gradients, turn parameters into a vector, measure running statistics, pack sequences.

spectral_norm and weight_norm come from `parametrizations`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minorm.nn.utils.gradients import (
    clip_grad_norm_,
    clip_grad_value_,
    parameters_to_vector,
    vector_to_parameters,
)
from minorm.support import lazy

LATER = {"parametrizations": "spectral_norm weight_norm", "rnn": "", "running_statistics": "freeze_norm precise_bn"}
__getattr__, __dir__ = lazy.names(__name__, LATER)

if TYPE_CHECKING:
    from minorm.nn.utils import rnn
    from minorm.nn.utils.parametrizations import spectral_norm, weight_norm
    from minorm.nn.utils.running_statistics import freeze_norm, precise_bn
