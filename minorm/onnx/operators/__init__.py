"""The rules that write, read and convert operators: one file for each family of operators, with all versions."""
