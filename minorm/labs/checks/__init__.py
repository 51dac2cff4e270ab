"""Holds the checks of each lab: one module per lab, found by its name."""
