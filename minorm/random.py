"""The random generator under its documented address; devices/random.py holds it."""

from minorm.devices.random import Generator, generator, get_state, kept, manual_seed, set_state

__all__ = ["Generator", "generator", "get_state", "kept", "manual_seed", "set_state"]
