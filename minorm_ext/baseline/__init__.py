"""Holds the kernels that every processor of this architecture can run."""
