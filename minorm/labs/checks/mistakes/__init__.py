"""Typical mistakes of each lab: a class that gives right answers, and a subclass for each mistake."""
