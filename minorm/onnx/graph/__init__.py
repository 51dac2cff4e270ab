"""The parts that the reader and the writer of files share: nodes, values, types, versions and the register of rules."""
