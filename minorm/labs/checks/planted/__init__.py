"""Holds wrong implementations that students' tests should find, if they need separate code."""
