"""The graph that operations record, and the backward walk through it."""
