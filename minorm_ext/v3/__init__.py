"""Holds the kernels for x86-64-v3: AVX2 and fused multiply-add. Empty on other architectures."""
