"""Holds the kernels for x86-64-v4: AVX-512. Empty on other architectures."""
