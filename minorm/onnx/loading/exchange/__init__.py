"""Replace nodes of a loaded graph by other layers: spots.py finds the nodes, replacing.py takes them out."""
