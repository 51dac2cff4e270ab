"""`minorm quantize`: the command, the images that it runs a model on, and onnxruntime beside it."""

from minorm.cli.quantize.command import add

__all__ = ["add"]
