"""The training loop and its parts: the batches, the loss, the divisor of a mean loss, and the score."""
