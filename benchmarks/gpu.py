"""A GPU in ten minutes: are the results right, how fast is its memory, and how near to that is each kernel?

    python -m benchmarks.gpu [--json FILE] [--types float32 bfloat16] [--skip-parity]

1. Parity: every operation, type and memory order against a float64 formula, into poisoned memory, the bits twice.
2. The rate of a copy of 1 GiB, read and written.
3. Each operation on large tensors, forward and backward apart: the median of CUDA events, buffers in rotation so that
   nothing is left in the second-level cache. `share` is bytes that must move / time / the copy's rate; `eager` is
   PyTorch's time over ours, where a PyTorch that has this GPU is installed.
4. A small operation from Python, allocation included: microseconds a call, without waiting for the device.

The process ends with 1 where a result is wrong, and with 2 where there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import minorm as mn
from benchmarks.gpu_cases import LARGE, SMALL, TYPES, Case, arrays, cases, forward, peer, tensors
from benchmarks.gpu_parity import judge

RUNS = 30
ROTATED = 512 << 20  # bytes of buffers in turn: beyond any second-level cache


def milliseconds(function: Callable[[int], Any], runs: int = RUNS) -> float:
    """The median over calls, by the device's own clock; the call is told its number."""
    import cupy

    for i in range(3):
        function(i)
    times = []
    for i in range(runs):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        function(i)
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, end))
    return statistics.median(times)


def copy_rate() -> float:
    """Bytes a second, read and written."""
    import cupy

    source = cupy.ones(1 << 28, cupy.float32)
    target = cupy.empty_like(source)
    return 2 * source.nbytes / milliseconds(lambda _: cupy.copyto(target, source)) * 1000


def ours_and_peer(case: Case, torch: Any) -> dict[str, float]:
    """Milliseconds of forward and of backward, ours and PyTorch's."""
    copies = max(2, min(8, ROTATED // case.bytes))
    ours = [tensors(arrays(case), "cuda") for _ in range(copies)]
    found = times([forward(case, t) for t in ours], ours, lambda y, t: y.backward(t["dy"], retain_graph=True))
    found = {f"minorm {name}": value for name, value in found.items()}
    if torch is not None:
        theirs = [{name: torch.from_dlpack(value.detach()) for name, value in t.items()} for t in ours]
        for t in theirs:
            for name in ("x", "scale", "bias"):
                t[name].requires_grad_(True)
        steps = [peer(case, t) for t in theirs]
        other = times(steps, theirs, lambda y, t: y.backward(t["dy"], retain_graph=True))
        found |= {f"torch {name}": value for name, value in other.items()}
    return found


def times(calls: list[Callable[[], Any]], t: list[Any], backward: Callable[[Any, Any], None]) -> dict[str, float]:
    """Milliseconds of forward and of backward, the buffers in rotation."""

    def back(i: int) -> None:
        backward(done[i % len(done)], t[i % len(t)])
        for name in ("x", "scale", "bias"):
            t[i % len(t)][name].grad = None

    forward_ms = milliseconds(lambda i: calls[i % len(calls)]())
    done = [call() for call in calls]
    return {"forward": forward_ms, "backward": milliseconds(back)}


def microseconds(call: Callable[[], Any], calls: int = 2000) -> float:
    """Python's part of a call: the median over ten rounds, the device at work meanwhile."""
    rounds = []
    for _ in range(10):
        mn.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls // 10):
            call()
        rounds.append((time.perf_counter() - start) / (calls // 10) * 1e6)
    return statistics.median(rounds)


def torch_with_gpu() -> Any:
    """PyTorch, where it is installed and can use the GPU."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def parity(types: tuple[str, ...]) -> list[dict[str, Any]]:
    found = []
    for case in cases(SMALL, types):
        verdict = judge(case)
        found.append({**case._asdict(), **verdict._asdict(), "case": str(case), "passed": verdict.passed})
        if not verdict.passed:
            same = "" if verdict.repeats else ", and a second run gave other bits"
            print(f"  WRONG {case}: the error of {verdict.worst} is {verdict.share:.3g} of what is allowed{same}")
    right = sum(line["passed"] for line in found)
    print(f"parity: {right} of {len(found)} cases right, in poisoned memory, with the same bits twice", flush=True)
    return found


def speed(types: tuple[str, ...], rate: float, torch: Any) -> list[dict[str, Any]]:
    print(f"{'':52} {'forward':>23} {'backward':>23}\n{'':52} {'ms   share   eager':>23} {'ms   share   eager':>23}")
    lines = []
    for case in cases(LARGE, types):
        t = ours_and_peer(case, torch)
        line: dict[str, Any] = {**case._asdict(), **t}
        text = f"{case!s:52}"
        for way, passes in zip(("forward", "backward"), case.passes, strict=True):
            ours = t[f"minorm {way}"]
            line[f"{way} share"] = passes * case.bytes / (ours / 1000) / rate
            ratio = f"{t[f'torch {way}'] / ours:7.2f}" if torch is not None else f"{'':7}"
            text += f" {ours:7.3f} {line[f'{way} share']:7.2f} {ratio}"
        print(text, flush=True)
        lines.append(line)
    return lines


def overhead(torch: Any) -> list[dict[str, Any]]:
    print("small operations from Python, microseconds a call without waiting for the device: minorm, PyTorch")
    lines = []
    for op, shape in (("layer", (32, 64)), ("rms", (32, 64)), ("batch", (8, 16, 4, 4)), ("group", (8, 16, 4, 4))):
        case = Case(op, shape, "float32")
        t = tensors(arrays(case), "cuda")
        line = {"op": op, "shape": shape, "minorm": microseconds(forward(case, t))}
        if torch is not None:
            line["torch"] = microseconds(peer(case, {name: torch.from_dlpack(v.detach()) for name, v in t.items()}))
        print(f"  {op:8} {'x'.join(map(str, shape)):10} {line['minorm']:7.1f} {line.get('torch', float('nan')):7.1f}")
        lines.append(line)
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        description="The normalizations on a GPU: right, and how near to the memory's rate."
    )
    parser.add_argument("--json", help="write every figure to this file")
    parser.add_argument("--types", nargs="+", choices=TYPES, default=TYPES)
    parser.add_argument("--skip-parity", action="store_true")
    args = parser.parse_args()
    if not mn.cuda.is_available():
        print("benchmarks.gpu: there is no GPU that CuPy can use here", file=sys.stderr)
        return 2
    torch, types = torch_with_gpu(), tuple(args.types)
    name = mn.cuda.get_device_name()
    print(f"{name}; minorm {mn.__version__}; PyTorch {'none with this GPU' if torch is None else torch.__version__}")
    record: dict[str, Any] = {"device": name, "minorm": mn.__version__, "date": time.strftime("%Y-%m-%d")}
    if not args.skip_parity:
        record["parity"] = parity(TYPES)
    record["copy bytes a second"] = rate = copy_rate()
    print(f"copy: {rate / 1e9:.0f} GB/s, read and written")
    record["speed"] = speed(types, rate, torch)
    record["overhead"] = overhead(torch)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=1)
    return 0 if all(line["passed"] for line in record.get("parity", [])) else 1


if __name__ == "__main__":
    sys.exit(main())
