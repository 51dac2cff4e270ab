"""Holds the kernels for matrix tiles, AMX beside AVX-512: `integers` and `products`. Empty on other architectures."""
