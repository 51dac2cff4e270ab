"""The parts of a file that reading and writing share: nodes, values, types, versions and the registry of rules."""
