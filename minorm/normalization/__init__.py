"""Normalization: its loops, equation, running statistics, forward and backward pass."""
