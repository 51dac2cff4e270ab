"""The random generator under its documented address; devices/generators.py holds it."""

from minorm.devices.generators import Generator, generator, get_state, kept, manual_seed, set_state

__all__ = ["Generator", "generator", "get_state", "kept", "manual_seed", "set_state"]
