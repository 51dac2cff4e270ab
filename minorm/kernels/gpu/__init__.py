"""Backend gpu: CuPy arrays, and kernels of our own. `backend` has its modules; sources and launches need no CuPy."""
