"""Holds wrong implementations for students' tests to find, if they are more than an option of the right one."""
