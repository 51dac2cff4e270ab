"""minorm.onnx: models out to ONNX and in. Needs: pip install onnx onnxruntime.

minorm.onnx.export(model, x, "model.onnx")
model = minorm.onnx.load("model.onnx")
"""

try:
    import onnx as _onnx  # the package, not this one
except ImportError as error:
    raise ImportError("minorm.onnx needs the onnx package; install it with: pip install onnx onnxruntime") from error

from minorm.onnx import rules  # importing it registers them
from minorm.onnx.checking import Report, verify
from minorm.onnx.conversion import convert
from minorm.onnx.errors import ExportError, LoadError, VerifyError
from minorm.onnx.exporting import export
from minorm.onnx.loading import load

__all__ = ["ExportError", "LoadError", "Report", "VerifyError", "convert", "export", "load", "verify"]
