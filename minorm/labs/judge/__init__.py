"""Grades submissions: judges them, scores them and writes reports."""
