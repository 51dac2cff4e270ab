"""What users call: each function decides axes, checks its arguments and applies one operation.

    import minorm.functional as F
"""

from minorm.functional.activation import (
    elu,
    gelu,
    hardsigmoid,
    hardswish,
    leaky_relu,
    log_softmax,
    relu,
    relu6,
    sigmoid,
    silu,
    softmax,
    softplus,
    tanh,
)
from minorm.functional.dropout import dropout
from minorm.functional.linear import linear
from minorm.functional.loss import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    l1_loss,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
)
