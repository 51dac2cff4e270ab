"""From a Module to a file: run it, record what it does, write that down."""
