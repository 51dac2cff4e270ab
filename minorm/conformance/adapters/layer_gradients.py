"""Differentiate an adapter's `forward`: a framework's layers compute the gradients of x, scale and bias."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minorm.conformance.adapters import flax as flax_layers
from minorm.conformance.adapters import framework_layers as layers
from minorm.conformance.adapters import keras as keras_layers
from minorm.conformance.adapters import mlx as mlx_layers
from minorm.conformance.adapters import paddle as paddle_calls
from minorm.conformance.case import Case


def flax(case: Case) -> list[Any]:
    """Return the gradients of Flax's layer, computed with `jax.vjp`."""
    return _by_jax(flax_layers.forward, case)


def keras(case: Case) -> list[Any]:
    """Return the gradients of Keras's layer, computed with `jax.vjp`, because Keras runs on JAX here."""
    return _by_jax(keras_layers.forward, case)


def _by_jax(forward: Callable[..., list[Any]], case: Case) -> list[Any]:
    import jax

    given, dy = layers.tensors(layers.jax_array, case), layers.to_tensor(layers.jax_array, case.beside)
    asked = len(case.wanted)
    pull = jax.vjp(lambda *some: forward(case, *some, *given[asked:])[0], *given[:asked])[1]
    return [layers.to_array(gradient) for gradient in pull(dy)]


def mlx(case: Case) -> list[Any]:
    """Return the gradients of MLX's layer, computed with `mlx.core.vjp`."""
    import mlx.core as mx

    given, dy = layers.tensors(mlx_layers.make_array, case), layers.to_tensor(mlx_layers.make_array, case.beside)
    asked = len(case.wanted)
    _, found = mx.vjp(lambda *some: mlx_layers.forward(case, *some, *given[asked:])[:1], given[:asked], [dy])
    return [layers.to_array(gradient, mx.float32) for gradient in found]


def paddle(case: Case) -> list[Any]:
    """Return the gradients of PaddlePaddle's function, computed with `paddle.grad`."""
    import paddle as framework

    given = layers.tensors(paddle_calls.make_tensor, case)
    dy, asked = layers.to_tensor(paddle_calls.make_tensor, case.beside), given[: len(case.wanted)]
    for tensor in asked:
        tensor.stop_gradient = False
    found = framework.grad(paddle_calls.forward(case, *given)[:1], asked, [dy])
    return [layers.to_array(gradient) for gradient in found]
