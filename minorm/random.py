"""The documented address of the random generator; devices/generators.py has it."""

from minorm.devices.generators import Generator, generator, get_state, kept, manual_seed, set_state

__all__ = ["Generator", "generator", "get_state", "kept", "manual_seed", "set_state"]
