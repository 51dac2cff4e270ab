"""Grading: submissions are judged, scored and reported."""
