"""The loops, the equation, the running statistics, and the forward and backward pass of normalizations."""
