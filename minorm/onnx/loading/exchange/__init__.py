"""Other layers in the place of nodes: spots.py finds the nodes, replacing.py takes them out of the graph."""
