"""How the command line talks: lines, tables, progress, errors and exit codes."""
