"""What a file is made of, whichever way it goes: nodes, values, types, versions, and the registry of rules."""
