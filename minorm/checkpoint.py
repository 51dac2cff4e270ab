"""State dicts and training runs under their documented address; serialization/checkpoint.py holds them."""

from minorm.serialization.checkpoint import load, load_arrays, load_metadata, load_training, save, save_training

__all__ = ["load", "load_arrays", "load_metadata", "load_training", "save", "save_training"]
