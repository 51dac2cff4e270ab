"""The public module of the random generator, which devices/generators.py defines."""

from minorm.devices.generators import Generator, generator, get_state, kept, manual_seed, set_state

__all__ = ["Generator", "generator", "get_state", "kept", "manual_seed", "set_state"]
