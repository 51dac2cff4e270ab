"""Export models to ONNX, and load ONNX models. Needs: pip install onnx onnxruntime.

minorm.onnx.export(model, x, "model.onnx")
model = minorm.onnx.load("model.onnx")
"""

try:
    import onnx as _onnx  # the package, not this one
except ImportError as error:
    raise ImportError("minorm.onnx needs the onnx package; install it with: pip install onnx onnxruntime") from error

from minorm.onnx.checking.verification import Report, verify
from minorm.onnx.conversion.convert import convert
from minorm.onnx.exporting.export import export
from minorm.onnx.graph.errors import ExportError, LoadError, VerifyError
from minorm.onnx.loading.load import load
from minorm.onnx.operators import rules  # this import registers the rules of all operators

__all__ = ["ExportError", "LoadError", "Report", "VerifyError", "convert", "export", "load", "verify"]
