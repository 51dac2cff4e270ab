"""Operators of onnxruntime and of previews, expanded into ONNX's operators: see operators/expansions.py."""
