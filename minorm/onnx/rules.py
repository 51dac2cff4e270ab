"""The rules of all operators: importing a family's file registers what is in it."""

from minorm.onnx import (  # noqa: F401
    activation,
    arithmetic,
    comparison,
    convolution,
    dropout,
    indexing,
    linear,
    loss,
    pooling,
    reduction,
    shape,
)
