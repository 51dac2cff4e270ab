"""Builds the kernels of processors that are not at hand, with their special instructions in plain C."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).parents[3]


def built(name: str, folder: Path, flags: str) -> Any:
    """A module of kernels, built for the baseline with these flags."""
    pytest.importorskip("Cython")
    if not (CHECKOUT / "setup.py").exists():
        pytest.skip("needs a checkout and a compiler")
    command = [sys.executable, "setup.py", "build_ext", "--only", name, "--level", "baseline"]
    subprocess.run(
        [*command, "--build-lib", str(folder), "--build-temp", str(folder / "objects")],
        cwd=CHECKOUT,
        env={**os.environ, "CFLAGS": flags},
        check=True,
        capture_output=True,
        timeout=300,
    )
    (library,) = folder.glob(f"minorm_ext/baseline/{name}*")
    spec = importlib.util.spec_from_file_location(f"minorm_ext.baseline.{name}", library)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module
