"""Helpers that every part may use: errors in words, docstrings, late imports, names that are safe to show."""
