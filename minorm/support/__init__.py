"""Helpers for all other packages: clear errors, docstrings, late imports, names that are safe to show."""
