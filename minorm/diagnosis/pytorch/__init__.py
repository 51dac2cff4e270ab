"""Modules of PyTorch as subjects of a diagnosis; PyTorch is not imported here, as the caller has imported it."""
