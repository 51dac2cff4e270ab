"""Reading and writing files: states, checkpoints, PyTorch's .pt files."""
