"""The images of a run: how they are read, changed and scaled, and which settings fit them."""
