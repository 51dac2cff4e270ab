"""A GPU in ten minutes: are the results right, how fast is its memory, and how near to that is each kernel?

    python -m benchmarks.gpu [--json FILE] [--types float32 bfloat16] [--skip-parity]

1. Parity, in every type, into poisoned memory, the bits twice: normalizations in both memory orders against float64
   formulas; all other operations, the optimizers and a network against the CPU in float64.
2. The rate of a copy of 1 GiB, read and written.
3. Each operation on large tensors, forward and backward apart: the median of CUDA events, buffers in rotation so that
   nothing is left in the second-level cache. `share` is bytes that must move / time / the copy's rate; `eager` is
   PyTorch's time over ours, where a PyTorch that has this GPU is installed.
4. A small operation from Python, allocation included: microseconds a call, without waiting for the device.
5. A training step of ResNet-20.

The process ends with 1 where a result is wrong, and with 2 where there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import numpy as np

import minorm as mn
import minorm.functional as F
from benchmarks import gpu_families
from benchmarks.gpu_cases import LARGE, SMALL, TYPES, Case, arrays, cases, forward, peer, spread, tensors
from benchmarks.gpu_families import FAMILIES, Family
from benchmarks.gpu_parity import judge
from benchmarks.gpu_timing import both_ways, copies, copy_rate, microseconds
from minorm import models, optim

NETWORK = 64, 3, 32  # images of a batch, their channels, their height and width


def torch_with_gpu() -> Any:
    """PyTorch, where it is installed and can use the GPU."""
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def parity(types: tuple[str, ...]) -> list[dict[str, Any]]:
    """Every normalization against its formula, every other operation against the CPU in float64."""
    found = []
    for case in cases(SMALL, types):
        verdict = judge(case)
        found.append({**case._asdict(), **verdict._asdict(), "case": str(case), "passed": verdict.passed})
        tell(f"{case}: the error of {verdict.worst}", found[-1])
    for line in gpu_families.parity(types):
        found.append(line)
        tell(f"{line['case']} {line['dtype']}: the error", line)
    right = sum(line["passed"] for line in found)
    print(f"parity: {right} of {len(found)} cases right, in poisoned memory, with the same bits twice", flush=True)
    return found


def tell(what: str, line: dict[str, Any]) -> None:
    """Print what is wrong, if anything is."""
    if not line["passed"]:
        same = "" if line["repeats"] else ", and a second run gave other bits"
        print(f"  WRONG {what} is {line['share']:.3g} of what is allowed{same}", flush=True)


def speed(types: tuple[str, ...], rate: float, torch: Any) -> list[dict[str, Any]]:
    """Every operation on large tensors."""
    print(f"{'':52} {'forward':>23} {'backward':>23}\n{'':52} {'ms   share   eager':>23} {'ms   share   eager':>23}")
    lines = []
    for case in cases(LARGE, types):
        lines.append({**case._asdict(), **compared(case, torch)})
        show(str(case), lines[-1], (case.passes[0] * case.bytes, case.passes[1] * case.bytes), rate)
    for family in FAMILIES:
        for dtype in types if family.large else ():
            size = int(np.prod(family.large[0])) * np.dtype(dtype).itemsize
            floors = None if family.passes is None else (family.passes[0] * size, family.passes[1] * size)
            lines.append(
                {"op": family.name, "shape": family.large[0], "dtype": dtype, **compared_family(family, dtype, torch)}
            )
            show(f"{family.name} {'x'.join(map(str, family.large[0]))} {dtype}", lines[-1], floors, rate)
    return lines


def compared(case: Case, torch: Any) -> dict[str, float]:
    """Milliseconds of a normalization forward and backward, ours and PyTorch's."""
    ours = [spread(case) for _ in range(copies(case.bytes))]
    leaves = [[t[name] for name in ("x", "scale", "bias")] for t in ours]
    found = both_ways("minorm", [forward(case, t) for t in ours], leaves)
    if torch is not None:
        theirs = [{name: torch.from_dlpack(value.detach()) for name, value in t.items()} for t in ours]
        leaves = [[t[name].requires_grad_(True) for name in ("x", "scale", "bias")] for t in theirs]
        found |= both_ways("torch", [peer(case, t) for t in theirs], leaves)
    return found


def compared_family(family: Family, dtype: str, torch: Any) -> dict[str, float]:
    """The same of another operation."""
    size = int(np.prod(family.large[0])) * np.dtype(dtype).itemsize
    ours = [gpu_families.spread(family, dtype) for _ in range(copies(size))]
    found = both_ways("minorm", [lambda t=t: family.call(F, *t) for t in ours], ours)
    if torch is not None:
        theirs = [[torch.from_dlpack(t.detach()).requires_grad_(t.requires_grad) for t in inputs] for inputs in ours]
        functions = torch.nn.functional
        found |= both_ways("torch", [lambda t=t: family.call(functions, *t) for t in theirs], theirs)
    return found


def show(name: str, line: dict[str, Any], floors: tuple[float, float] | None, rate: float) -> None:
    """Print a line of the table, and note the share of the copy's rate."""
    text = f"{name:52}"
    for number, way in enumerate(("forward", "backward")):
        ours, share = line[f"minorm {way}"], f"{'':7}"
        if floors is not None:
            line[f"{way} share"] = floors[number] / (ours / 1000) / rate
            share = f"{line[f'{way} share']:7.2f}"
        ratio = f"{line[f'torch {way}'] / ours:7.2f}" if f"torch {way}" in line else f"{'':7}"
        text += f" {ours:7.3f} {share} {ratio}"
    print(text, flush=True)


def training(torch: Any) -> dict[str, float]:
    """Milliseconds of a step of ResNet-20, of a batch of images of 32 by 32, by the clock on the wall."""
    batch, channels, size = NETWORK
    rng = np.random.default_rng(0)
    images = mn.tensor(rng.standard_normal((batch, channels, size, size)), mn.float32, "cuda")
    labels = mn.tensor(rng.integers(0, 10, batch), device="cuda")
    net = models.build("resnet20", channels, size, 10).to("cuda")
    step = gpu_families.stepping(net, optim.SGD(net.parameters(), 0.01, momentum=0.9), F, images, labels)
    found = {"minorm": microseconds(step, 100, wait=True) / 1000}
    if torch is not None:
        other = models.build("resnet20", channels, size, 10, torch.nn).cuda()
        optimizer = torch.optim.SGD(other.parameters(), 0.01, momentum=0.9)
        step = gpu_families.stepping(
            other, optimizer, torch.nn.functional, torch.from_dlpack(images), torch.from_dlpack(labels)
        )
        found["torch"] = microseconds(step, 100, wait=True) / 1000
    print(f"a step of ResNet-20, {batch} images: {', '.join(f'{name} {ms:.2f} ms' for name, ms in found.items())}")
    return found


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
    parser = argparse.ArgumentParser(description="minorm on a GPU: right, and how near to the memory's rate.")
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
    record["ResNet-20, milliseconds a step"] = training(torch)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=1)
    return 0 if all(line["passed"] for line in record.get("parity", [])) else 1


if __name__ == "__main__":
    sys.exit(main())
