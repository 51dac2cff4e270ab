"""Checks for packages that only some commands need. An error names the missing packages and how to install them."""

from __future__ import annotations

import importlib.util

INSTALL = {"sklearn": "scikit-learn", "PIL": "pillow"}  # packages whose name to install is not the name to import


def need(*names: str) -> None:
    """Raise ImportError, which `main` shows as one sentence, unless every package in `names` is installed."""
    missing = [INSTALL.get(name, name) for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"needs {' and '.join(missing)}; install with: pip install {' '.join(missing)}")
