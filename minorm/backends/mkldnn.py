"""PyTorch's backend for Intel's oneDNN library, which minorm does not have."""

enabled = False


def is_available() -> bool:
    """Return False."""
    return False
