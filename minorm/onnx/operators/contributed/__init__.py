"""Operators of onnxruntime and of previews, expanded into those of ONNX: see operators/expansions.py."""
