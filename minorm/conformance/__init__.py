"""Test which runtimes compute normalizations as ONNX defines them: cases, a formula in float64, a verdict per cell."""
