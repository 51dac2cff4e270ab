"""The gpu backend: our kernels for CuPy arrays. modules.py imports its modules; sources and plans need no CuPy."""
