"""The checks of each lab: one module a lab, found by its name."""
