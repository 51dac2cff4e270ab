"""Plans of launches: they choose kernels, their grids and their arguments."""
