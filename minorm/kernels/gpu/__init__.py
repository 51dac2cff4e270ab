"""The gpu backend: minorm's kernels for CuPy arrays. modules.py imports all of them; source.py and launch.py need no
CuPy.
"""
