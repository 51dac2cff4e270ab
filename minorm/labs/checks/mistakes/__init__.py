"""Typical mistakes of each lab: a class `Right` with right functions, and a subclass for each mistake."""
