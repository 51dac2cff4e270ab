"""Modules of PyTorch as subjects of a diagnosis. PyTorch is never imported: a caller with such a module has done so."""
