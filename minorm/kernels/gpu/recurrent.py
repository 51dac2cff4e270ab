"""RNN, LSTM and GRU on CuPy arrays. The reference runs the steps with cuBLAS and minorm's activation kernels."""

from __future__ import annotations

import functools

from minorm.kernels.gpu import elementwise, matmul
from minorm.kernels.reference import recurrent as reference
from minorm.kernels.reference.recurrent import Cell, Kernels, Memory

__all__ = ["Cell", "Memory", "backward", "forward"]

_kernels = Kernels(elementwise, matmul)
forward = functools.partial(reference.forward, kernels=_kernels)
backward = functools.partial(reference.backward, kernels=_kernels)
