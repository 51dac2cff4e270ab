"""The other process of `minorm check`: `python -m minorm.cli.probe checker|onnxruntime FILE` prints one line.

Exit code 0: valid, or not asked (onnxruntime is not installed); 1: the line says what is wrong.
"""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any

import numpy as np

MEMORY_LIMIT = 16 << 30  # address space, in bytes: onnxruntime reserves more than it uses


def main(what: str, path: str) -> int:
    """Print the verdict on the model in `path`."""
    _limit_memory()
    try:
        print({"checker": _checker, "onnxruntime": _onnxruntime}[what](path))
    except Exception as error:  # noqa: BLE001  whatever the tools raise is the answer
        print(" ".join(f"{type(error).__name__}: {error}".split())[:600])
        return 1
    return 0


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    with contextlib.suppress(ValueError, OSError):  # a lower limit is set already
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))


def _checker(path: str) -> str:
    import onnx

    onnx.checker.check_model(path, full_check=True)
    return f"valid (onnx {onnx.__version__})"


def _onnxruntime(path: str) -> str:
    try:
        import onnxruntime
    except ImportError:
        return 'not installed: pip install "minorm[onnx]"'
    version = f"onnxruntime {onnxruntime.__version__}"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feeds, reason = {}, ""
    for entry in session.get_inputs():
        feeds[entry.name], problem = _example(entry)
        reason = reason or problem
    if reason:
        return f"loads in {version}; not run: {reason}"
    start = time.perf_counter()
    results = session.run(None, feeds)
    seconds = time.perf_counter() - start
    names = [entry.name for entry in session.get_outputs()]
    shapes = ", ".join(f"{name} {getattr(r, 'shape', '')}" for name, r in zip(names, results, strict=True))
    return f"runs in {version}: {shapes} in {1000 * seconds:.1f} ms"


def _example(entry: Any) -> tuple[Any, str]:
    """Random floats, or zeros, of an input's shape with 2 for a free first axis; or why that cannot be."""
    kinds = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
    whole = {f"tensor({name})": np.dtype(name) for name in ("int64", "int32", "int8", "uint8", "int16", "bool")}
    shape = [2 if i == 0 and not isinstance(n, int) else n for i, n in enumerate(entry.shape)]
    if not all(isinstance(n, int) for n in shape):
        return None, f"{entry.name} has free axes {[n for n in shape if not isinstance(n, int)]}"
    if entry.type in kinds:
        return np.random.default_rng(0).standard_normal(shape).astype(kinds[entry.type]), ""
    if entry.type in whole:
        return np.zeros(shape, whole[entry.type]), ""
    return None, f"{entry.name} is a {entry.type}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
