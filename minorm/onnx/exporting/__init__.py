"""Export a Module to a file: run it, record its operations, and write them as a graph."""
