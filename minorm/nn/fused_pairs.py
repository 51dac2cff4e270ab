"""Decides which layers of a Sequential run in one pass: a normalization and the ReLU directly after it.

The two layers run separately if a hook or a trace (an export, `mn.diagnose`) needs the result of the first layer, if a
layer has a custom forward, or if a layer is parametrized. The results are the same, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from minorm.functional.norm.activated_norms import is_recorded
from minorm.nn.layers.activation import ReLU
from minorm.nn.module import Module

Forward = TypeVar("Forward", bound=Callable[..., Any])
_relu = ReLU.forward


def takes_activation(forward: Forward) -> Forward:
    """Mark the forward of a layer as one that takes activation="relu". A forward that overrides or wraps a marked
    forward is not marked.
    """
    vars(forward)["takes_activation"] = forward
    return forward


def run_together(layer: Module, follower: Module) -> bool:
    """Return True if `layer(x, activation="relu")` gives the same result as running both layers in turn."""
    forward = type(layer).forward
    return (
        type(follower) is ReLU
        and ReLU.forward is _relu  # a user may have replaced it, for all layers
        and ReLU.__call__ is Module.__call__
        and getattr(forward, "takes_activation", None) is forward
        and type(layer).__call__ is Module.__call__
        and not is_recorded()
        and not hasattr(type(layer), "parametrized")
        and not _is_changed(layer)
        and not _is_changed(follower)
    )


def _is_changed(layer: Module) -> bool:
    """Return True if this layer has a hook, or a custom forward as an attribute."""
    own = vars(layer)
    return "forward" in own or any(own.get("_hooks", {}).values())
