"""Judge whether each tensor of a file is a Parameter, a buffer or a constant, by its name, its numbers and its use."""
