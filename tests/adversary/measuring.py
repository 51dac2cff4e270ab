"""Measure what reading a file costs: `python measuring.py` reads lines of [reader, path] and answers each from a fork.

An answer is [the error's class, or "" where the file was accepted; bytes of memory above those before; seconds of
processor time; decoded bytes]. A file that kills its reader has an answer too: its signal.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent


class Cost(NamedTuple):
    """The cost of reading one file."""

    error: str
    memory: int
    seconds: float
    decoded: int


def costs(cases: Sequence[tuple[str, Path]], timeout: float = 120) -> list[Cost]:
    """The cost of every (reader, path), all measured in forks of one process that has imported everything."""
    lines = "".join(json.dumps([reader, str(path)]) + "\n" for reader, path in cases)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    answers = subprocess.run(
        [sys.executable, __file__], input=lines, capture_output=True, text=True, env=environment, timeout=timeout,
        check=False,
    )  # fmt: skip
    assert answers.returncode == 0, answers.stderr
    return [Cost(*json.loads(line)) for line in answers.stdout.splitlines()]


def _readers() -> dict[str, Callable[[str], Any]]:
    from minorm import checkpoint, data
    from minorm.data.pictures.decoding import read_image

    return {
        "load": checkpoint.load,
        "load_training": checkpoint.load_training,
        "load_npz": data.load_npz,
        "read_idx": data.read_idx,
        "read_image": lambda path: read_image(path, 64),
        "read_image whole": lambda path: read_image(path, 2048),
        "load_cifar10": data.load_cifar10,
        **_readers_of_onnx(),
    }


def _readers_of_onnx() -> dict[str, Callable[[str], Any]]:
    try:
        import minorm.onnx as mo
    except ImportError:
        return {}

    def load(path: str) -> Any:
        return {name: tensor.array for name, tensor in mo.load(path).state_dict().items()}

    return {"onnx.load": load, "onnx.convert": lambda path: mo.convert(path, opset_version=21)}


def _decoded(value: Any) -> int:
    """Bytes of the arrays in a nest, each counted once."""
    found, waiting, seen = 0, [value], set()
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, dict):
            waiting.extend(part.values())
        elif isinstance(part, (list, tuple)):
            waiting.extend(part)
        elif hasattr(part, "arrays"):
            waiting.extend(part.arrays)
        else:
            array = getattr(part, "array", part)
            found += array.nbytes if isinstance(array, np.ndarray) else 0
    return found


def _pixels(path: str) -> int:
    """Return the bytes that a picture's pixels take, 4 each; 0 for any other file."""
    with open(path, "rb") as file:
        if not file.read(4).startswith((b"\x89PNG", b"RIFF", b"\xff\xd8", b"BM", b"GIF8", b"II*\0")):
            return 0
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None
    with contextlib.suppress(Exception), Image.open(path) as image:  # it warns of some files that are accepted
        return 4 * image.width * image.height
    return 0


def _status(name: str) -> int:
    with open("/proc/self/status") as file:
        return int(next(line for line in file if line.startswith(name)).split()[1]) << 10


def _answer(read: Callable[[str], Any], path: str) -> Cost:
    import resource
    import time
    import warnings

    warnings.simplefilter("error")
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
    resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
    before, start = _status("VmRSS"), time.process_time()
    error, found = "", None
    try:
        found = read(path)
    except BaseException as raised:  # noqa: BLE001  its class is the answer
        error = type(raised).__name__ if not isinstance(raised, ValueError) else "ValueError"
        if "--show" in sys.argv:
            print(path, str(raised)[:300], file=sys.stderr)
    seconds = time.process_time() - start
    memory = max(0, _status("VmHWM") - before)
    return Cost(error, memory, seconds, max(_decoded(found), 0 if error else _pixels(path)))


def _serve() -> None:
    readers = _readers()
    for line in sys.stdin.read().splitlines():
        reader, path = json.loads(line)
        source, target = os.pipe()
        child = os.fork()
        if not child:
            os.write(target, json.dumps(_answer(readers[reader], path)).encode())
            os._exit(0)
        os.close(target)
        with os.fdopen(source, "rb") as answer:
            said = answer.read().decode()
        _, status = os.waitpid(child, 0)
        print(said or json.dumps([f"signal {os.waitstatus_to_exitcode(status)}", 0, 0.0, 0]), flush=True)


if __name__ == "__main__":
    _serve()
