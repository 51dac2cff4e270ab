"""Tools beside the layers: gradients within bounds, parameters as one vector, statistics of a model, sequences.

`minorm.nn.utils.rnn` and `minorm.nn.utils.parametrizations` are imported by name.
"""

from minorm.nn.utils.gradients import (
    clip_grad_norm_,
    clip_grad_value_,
    parameters_to_vector,
    vector_to_parameters,
)
from minorm.nn.utils.statistics import freeze_norm, precise_bn
