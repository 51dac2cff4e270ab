"""The training loop and what a step of it needs: batches, the loss, its divisor, the score."""
