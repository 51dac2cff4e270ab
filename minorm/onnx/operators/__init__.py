"""One file a family of operators: how it is written and how it is read, all versions side by side."""
