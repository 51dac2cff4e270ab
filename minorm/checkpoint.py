"""The public module of the functions that save state dicts and training runs; serialization/checkpoint.py defines these
functions.
"""

from minorm.serialization.checkpoint import load, load_arrays, load_metadata, load_training, save, save_training

__all__ = ["load", "load_arrays", "load_metadata", "load_training", "save", "save_training"]
