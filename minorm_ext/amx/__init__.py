"""The kernels for matrix tiles: AMX with bfloat16, beside AVX-512. Only `products` is here; empty elsewhere."""
