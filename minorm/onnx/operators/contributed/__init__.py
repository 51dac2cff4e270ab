"""Operators of onnxruntime and of previews, written in those of ONNX: see operators/expansions.py."""
