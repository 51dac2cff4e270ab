"""The gpu backend: our kernels for CuPy arrays. modules.py imports the rest; source.py and launch.py need no CuPy."""
