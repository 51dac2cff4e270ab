"""The rules of all operators: importing a family's file registers what is in it."""

from minorm.onnx.operators.control import branch, constant, repetition, sequence  # noqa: F401
from minorm.onnx.operators.math import (  # noqa: F401
    activation,
    activation_names,
    activation_steps,
    arithmetic,
    comparison,
    einsum,
    elementary,
    linear,
    random,
    reduction,
    remainder,
)
from minorm.onnx.operators.nn import (  # noqa: F401
    convolution,
    dropout,
    loss,
    pooling,
    pooling_steps,
    quantization,
    quantization_steps,
    recurrent,
    recurrent_steps,
)
from minorm.onnx.operators.norm import (  # noqa: F401
    batch_norm,
    batch_norm_steps,
    extensions,
    group_norm,
    instance_norm,
    layer_norm,
    masked_norm,
    mean_variance_norm,
    normalization,
    response,
    rms_norm,
)
from minorm.onnx.operators.shape import (  # noqa: F401
    axes_steps,
    broadcasting,
    depth,
    generation,
    indexing,
    indexing_steps,
    padding,
    resize,
    resize_steps,
    sampling,
    sampling_steps,
    scatter,
    selection,
    shape,
)
