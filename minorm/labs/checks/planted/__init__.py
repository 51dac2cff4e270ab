"""Holds wrong implementations that students' tests should find and that need code of their own."""
