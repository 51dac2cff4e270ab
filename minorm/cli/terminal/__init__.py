"""Output of the command line: lines, tables, progress, errors and exit codes."""
