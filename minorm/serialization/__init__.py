"""Reads and writes files: states, checkpoints, PyTorch's .pt files."""
