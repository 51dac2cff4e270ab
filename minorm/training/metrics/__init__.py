"""Measure a classifier by scores of each class (class_scores.py), and report all scores (classification_report.py)."""
