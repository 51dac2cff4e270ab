"""Operators of onnxruntime and of previews, written in those of ONNX: see graph/expansions.py."""
