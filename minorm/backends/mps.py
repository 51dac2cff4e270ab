"""PyTorch's backend for Apple's GPUs, which minorm does not have."""

enabled = False


def is_available() -> bool:
    """Return False."""
    return False
