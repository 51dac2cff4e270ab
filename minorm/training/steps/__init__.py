"""The training loop and its parts: batches, the loss, the loss's divisor, the score."""
