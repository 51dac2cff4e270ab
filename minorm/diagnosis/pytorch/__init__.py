"""Diagnoses modules of PyTorch. This package does not import PyTorch, since the caller has imported it."""
