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
from minorm.functional.convolution import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from minorm.functional.dropout import (
    dropout,
)
from minorm.functional.linear import (
    linear,
)
from minorm.functional.loss import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    l1_loss,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
)
from minorm.functional.normalization import (
    batch_norm,
    group_norm,
    instance_norm,
    layer_norm,
    mean_variance_norm,
    normalization,
    rms_norm,
)
from minorm.functional.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)
from minorm.functional.response import local_response_norm, normalize
