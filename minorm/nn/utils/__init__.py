"""Tools beside the layers: gradients within bounds, parameters as one vector, sequences of several lengths.

`minorm.nn.utils.rnn` and `minorm.nn.utils.parametrizations` are imported by name.
"""

from minorm.nn.utils.gradients import (
    clip_grad_norm_,
    clip_grad_value_,
    parameters_to_vector,
    vector_to_parameters,
)
