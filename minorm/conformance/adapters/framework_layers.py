"""Help adapters that call a framework's own layers: find the layer for a case, and convert arrays of bfloat16."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from minorm.conformance.case import Case
from minorm.devices.dtypes import bfloat16, float32


def find(layers: Mapping[str, Callable[..., Any]], case: Case, who: str) -> Callable[..., Any]:
    """Return the entry of `layers` that can run this case.

    Raise NotImplementedError, which names the framework `who`, if the framework has no such layer.
    """
    if case.operator not in layers:
        raise NotImplementedError(f"{who} has no {case.operator}")
    x, *parameters = case.inputs
    scale = parameters[0] if parameters else x  # LpNormalization and similar operators have no scale
    if case.operator == "BatchNormalization":
        if scale.ndim > 1:
            raise NotImplementedError(f"{who}'s batch norm has no statistics for each position")
        if x.ndim == 1:
            raise NotImplementedError(f"{who}'s batch norm needs a channel axis")
        if len(case.file_outputs) > 3:
            raise NotImplementedError(f"{who}'s batch norm does not return the statistics of the batch")
    if case.operator == "GroupNormalization" and scale.shape[0] != x.shape[1]:
        raise NotImplementedError(f"{who}'s group norm has one scale and bias per channel, not per group")
    if case.operator in ("LayerNormalization", "RMSNormalization"):
        if scale.shape != x.shape[axes_of(case)[0] :]:
            raise NotImplementedError(f"{who}'s scale must have the shape of the normalized axes")
        if len(case.file_outputs) > 1:
            raise NotImplementedError(f"{who}'s layer returns only y")
    return layers[case.operator]


def axes_of(case: Case) -> tuple[int, ...]:
    """Return the axes that a LayerNormalization or RMSNormalization reduces."""
    rank = case.inputs[0].ndim
    return tuple(range(case.get("axis", -1) % rank, rank))


def to_tensor(make: Callable[[Any, str], Any], array: Any) -> Any:
    """Call `make(array, type)`; pass bfloat16 as float32, because frameworks do not accept it from NumPy."""
    return make(array.astype(float32) if array.dtype == bfloat16 else array, str(array.dtype))


def jax_array(array: Any, kind: str) -> Any:
    """Turn a NumPy array into a JAX array for Flax or Keras; types of 64 bits are allowed."""
    import jax

    jax.config.update("jax_enable_x64", True)
    return jax.numpy.asarray(array, kind)


def tensors(make: Callable[[Any, str], Any], case: Case) -> list[Any]:
    """Convert all inputs of a case with `to_tensor`."""
    return [to_tensor(make, array) for array in case.inputs]


def fetched(case: Case, results: Sequence[Any], wide: Any = "float32") -> list[Any]:
    """Return those of `results` that the case asks for, as NumPy arrays; for `wide`, see to_array."""
    return [to_array(results[place], wide) for place, _ in case.wanted]


def to_array(value: Any, wide: Any = "float32") -> Any:
    """Turn a framework's array into a NumPy array.

    Numbers in bfloat16 are converted to the framework's type `wide` and then to minorm's bfloat16.
    """
    if not str(value.dtype).endswith("bfloat16"):
        return np.array(value)
    return np.array(value.astype(wide)).astype(bfloat16)
