"""Branches, loops, sequences and constants."""
