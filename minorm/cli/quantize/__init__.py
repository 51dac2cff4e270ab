"""The command `minorm quantize`, the images on which it runs a model, and the comparison with onnxruntime."""

from minorm.cli.quantize.command import add

__all__ = ["add"]
