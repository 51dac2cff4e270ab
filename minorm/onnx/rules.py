"""The rules of all operators: importing a family's file registers what is in it."""

from minorm.onnx import (  # noqa: F401
    activation,
    arithmetic,
    batch_norm,
    comparison,
    constant,
    convolution,
    dropout,
    group_norm,
    indexing,
    instance_norm,
    layer_norm,
    linear,
    loss,
    mean_variance_norm,
    normalization,
    pooling,
    reduction,
    response,
    rms_norm,
    shape,
)
