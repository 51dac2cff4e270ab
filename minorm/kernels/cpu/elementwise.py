"""Elementwise kernels of the CPU."""

from __future__ import annotations

from minorm.kernels.reference.elementwise import *  # noqa: F403
