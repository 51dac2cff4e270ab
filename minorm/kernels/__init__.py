"""The kernels: functions on arrays, without a graph, for the CPU, for the GPU and as a reference in NumPy."""
