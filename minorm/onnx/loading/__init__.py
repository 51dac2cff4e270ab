"""From a file to a Module that runs and trains."""
