"""How a file stores tensors that are no plain arrays: types narrower than a byte, and sparse ones."""
