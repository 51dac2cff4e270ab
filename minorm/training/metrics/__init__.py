"""Measure a classifier: scores by class (class_scores.py), and a report of all (classification_report.py)."""
