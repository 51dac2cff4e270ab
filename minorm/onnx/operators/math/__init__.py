"""Rules of functions of numbers, sums and products."""
