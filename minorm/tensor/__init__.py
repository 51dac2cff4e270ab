"""Tensor, and what it can do."""
