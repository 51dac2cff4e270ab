"""Pictures in files: what a file says of itself, and its pixels."""
