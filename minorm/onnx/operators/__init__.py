"""The rules that write, read and convert operators: one file for each family, with all versions side by side."""
