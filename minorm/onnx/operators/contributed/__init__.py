"""Expand operators of onnxruntime and of ONNX's previews into ONNX's operators (operators/expansions.py)."""
