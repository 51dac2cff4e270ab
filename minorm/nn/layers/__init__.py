"""Layers with and without weights that are no normalization, loss or recurrent network."""
