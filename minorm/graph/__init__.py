"""The graph that operations leave behind, and the walk through it backwards."""
