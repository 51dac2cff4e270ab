"""Which runtime computes a normalization as ONNX says? Cases, a formula in float64, and a verdict a cell."""
