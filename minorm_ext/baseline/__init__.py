"""The kernels as every processor of this architecture can run them."""
