"""A whole training step gives the same bytes with AVX2 as with AVX-512: a run begun on a server goes on on a laptop.

Each level computes in a separate process, and the lower level also runs without NumPy's loops for AVX-512.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import minorm_ext
from tests.levels import FUSED

PROGRAM = """
import hashlib, sys
import numpy as np
import minorm as mn
from minorm import models, nn, optim

name, channels, size, batch, optimizer = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
rng = np.random.default_rng(0)
mn.manual_seed(0)
model = models.build(name, channels, size, 10)
x = mn.tensor(rng.standard_normal((batch, channels, size, size), np.float32))
target = mn.tensor(rng.integers(0, 10, batch))
optimizer = getattr(optim, optimizer)(model.parameters(), lr=0.01)
for step in range(3):
    loss = nn.CrossEntropyLoss()(model(x), target)
    optimizer.zero_grad()
    loss.backward()
    for key, p in model.named_parameters():
        print(step, "gradient of", key, hashlib.sha256(p.grad.numpy().tobytes()).hexdigest())
    optimizer.step()
    print(step, "loss", float(loss.item()).hex())
for key, value in model.state_dict().items():
    print(key, hashlib.sha256(np.ascontiguousarray(value.numpy()).tobytes()).hexdigest())
"""


def of_level(level: str, arguments: tuple[str, ...]) -> list[str]:
    """Run a process with kernels of this level and return its output; below v4 NumPy does without AVX-512 as well."""
    environment = {**os.environ, "MINORM_MAX_LEVEL": level}
    extensions = np.show_config(mode="dicts")["SIMD Extensions"]  # type: ignore[call-overload, index]
    wide = [name for name in extensions.get("found", []) if "AVX512" in name or name == "X86_V4"]
    if level != "v4" and wide:
        environment["NPY_DISABLE_CPU_FEATURES"] = ",".join(wide)
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True, text=True, check=True, env=environment, cwd=Path(minorm_ext.__file__).parents[1],
    )  # fmt: skip
    return run.stdout.splitlines()


@pytest.mark.skipif(len(FUSED) < 2, reason="one level here that rounds multiply-adds once")
@pytest.mark.parametrize(
    "arguments",
    [
        ("digits", "1", "8", "64", "Adam"),
        ("lenet", "1", "28", "40", "SGD"),
        ("resnet20", "3", "32", "16", "SGD"),
        ("norms", "3", "32", "16", "AdamW"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_training_step_has_the_same_bytes_on_every_level_that_fuses(arguments: tuple[str, ...]) -> None:
    first, *others = (of_level(level, arguments) for level in FUSED)
    assert len(first) > 10
    for other in others:
        assert other == first
