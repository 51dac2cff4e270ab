"""Functions of numbers, sums and products."""
