"""Measure a classifier: scores by class (class_scores.py) and one report of them (classification_report.py)."""
