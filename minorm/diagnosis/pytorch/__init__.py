"""Modules of PyTorch as subjects of a diagnosis; PyTorch is never imported: the caller of such a module has done so."""
