"""What every test shares: the checkout on the path, a generator with a fixed seed, quick hypothesis settings."""

from __future__ import annotations

import signal

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import minorm as mn

# A shell starts what it runs in the background with Ctrl-C ignored, and tests press it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "minorm", max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("minorm")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240607)


@pytest.fixture(autouse=True)
def _seed() -> None:
    mn.manual_seed(0)
