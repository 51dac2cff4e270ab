"""Elements in another arrangement, chosen or made."""
