"""Inference of loaded graphs by plan."""
