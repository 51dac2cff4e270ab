"""Build the model that a run trains, and load the weights that it begins with."""
