"""Layers that are no normalization."""
