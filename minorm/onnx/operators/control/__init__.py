"""Rules of branches, loops, sequences, optional values and constants."""
