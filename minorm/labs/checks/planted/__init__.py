"""Holds wrong implementations that students' tests should find.

Labs whose bugs need little code keep them in their checks.
"""
