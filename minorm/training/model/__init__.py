"""Which model a run trains, and the weights that it begins with."""
