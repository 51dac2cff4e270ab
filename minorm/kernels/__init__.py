"""The kernels: functions on arrays, without a graph. There are three kinds: for the CPU, for the GPU, and a reference
in NumPy.
"""
