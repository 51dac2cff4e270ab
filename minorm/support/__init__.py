"""Helpers for all other packages: clear errors, docstrings, late imports, and names that are safe to print."""
