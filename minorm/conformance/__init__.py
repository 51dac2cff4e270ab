"""Test which runtimes compute normalizations as ONNX says: cases, a formula in float64, and a verdict per cell."""
