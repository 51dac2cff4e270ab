"""PyTorch's backend for Intel's library of layers, which is not there."""

enabled = False


def is_available() -> bool:
    """Return False."""
    return False
