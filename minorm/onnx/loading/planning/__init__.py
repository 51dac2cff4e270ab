"""Run inference of loaded graphs by plan."""
