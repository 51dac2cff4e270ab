"""Plans of launches: the choice of kernels, their grids and their arguments."""
