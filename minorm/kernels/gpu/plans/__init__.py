"""Which kernels run, on how many blocks, with what arguments."""
