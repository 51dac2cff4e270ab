"""Replace nodes of a loaded graph by other layers: spots.py finds the nodes, and replacing.py replaces them."""
