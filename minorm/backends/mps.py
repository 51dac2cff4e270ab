"""PyTorch's backend for Apple's GPUs, which is not there."""

enabled = False


def is_available() -> bool:
    """Return False."""
    return False
