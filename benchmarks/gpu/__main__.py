"""A GPU in ten minutes: are the results right, how fast is its memory, and how near to that is each kernel?

    python -m benchmarks.gpu [--results gpu.jsonl] [--deadline 540] [--limit 90] [--families NAME ...] [--cache DIR]
    python -m benchmarks.gpu --quick    what matters most, in 100 seconds where 16 cores compile
    python -m benchmarks.gpu --kernels [WORD ...]   without a GPU: a table of the kernels (kernel_table.py)

1. Every case runs once on all cores, which compiles its kernels; CuPy keeps them, in --cache if it is given.
2. The rate of a copy of 1 GiB, read and written.
3. Parity, into poisoned memory, the bits twice: normalizations in both memory orders against float64 formulas; all
   other operations, the optimizers and a network against the CPU in float64.
4. Training steps of ResNet-20, a U-Net and a network of other normalizations, in float32, TF32 and bfloat16: eager
   and as a CUDA graph, beside PyTorch's; what torch.compile makes of them comes late, as compiling takes it long.
5. Each operation on large tensors, forward and backward apart: the median of CUDA events, buffers in rotation so that
   nothing is left in the second-level cache. `share` is bytes that must move / time / the copy's rate; `eager` is
   PyTorch's time over ours, where a PyTorch that has this GPU is installed.
6. A small operation from Python, allocation included: microseconds a call, without waiting for the device.

float32 and bfloat16 come first, the other types last. This process only supervises: each family of cases runs in a
separate process, and each case's line is in the file of results before the next case begins. So an illegal address, an
exception or a case that takes longer than --limit seconds costs that one case. Cases that the file already has do not
run again: the same command goes on where the last one was cut short, for example at its deadline.

Nothing is asked of the network. Where the kernels for the CPU are those of another Python, they are compiled first. The
process ends with 1 where a result is wrong or a case was lost, with 2 where minorm or the GPU cannot be used, and
with 3 where the deadline left cases undone.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu.report import report
from benchmarks.gpu.results import read, write

ROOT = Path(__file__).parents[2]
WORKER = (sys.executable, "-m", "benchmarks.gpu.worker")
RESTS = ("float16", "float64")
TYPES = ("float32", "bfloat16", *RESTS)
ARCHITECTURES = ("sm_70", "sm_75", "sm_80", "sm_90", "sm_100")
FAMILIES = (
    "copy", "parity float32", "parity bfloat16", "training", "speed float32", "speed bfloat16", "speed TF32",
    "overhead", "compile",
    *[f"{kind} {dtype}" for dtype in RESTS for kind in ("parity", "speed")],
)  # fmt: skip
QUICK = ("copy", "training", "speed bfloat16", "speed float32", "speed TF32", "overhead")
DEADLINE, QUICK_DEADLINE = 540, 100  # seconds
WARMING = 0.4  # of the time, at most
ABOUT = """
import minorm as mn
x = mn.ones(2, 2).to("cuda")
(x.relu() @ x).cpu()  # CUDA's compiler and cuBLAS are there
from minorm.kernels.gpu.conv_cudnn import cudnn
way = "by columns, as nvidia-cudnn-frontend is not there" if cudnn is None else "by cuDNN"
print(f"minorm {mn.__version__} on {mn.cuda.get_device_name()}; convolutions {way}")
"""


def main(arguments: list[str] | None = None, worker: tuple[str, ...] = WORKER) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("gpu.jsonl"), help="a line of JSON a case is added to it")
    parser.add_argument("--quick", action="store_true", help="fewer families and cases, half as many runs")
    parser.add_argument("--deadline", type=float, help=f"seconds for everything: {DEADLINE}, quick {QUICK_DEADLINE}")
    parser.add_argument("--limit", type=float, default=90, help="seconds for one case")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, metavar="NAME")
    parser.add_argument("--cache", type=Path, help="where compiled kernels are kept")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes that compile")
    parser.add_argument("--kernels", nargs="*", metavar="WORD", help="print what the kernels of the operations with "
                        "such a word in their names take, and their time by count; needs no GPU")  # fmt: skip
    parser.add_argument("--types", nargs="+", choices=TYPES, default=TYPES, help="for --kernels: types of the arrays")
    parser.add_argument("--architecture", choices=ARCHITECTURES, default="sm_90", help="for --kernels: the device")
    parser.add_argument("--rate", type=float, default=4235, metavar="GB/S", help="for --kernels: the rate of a copy, "
                        "read and written (default 4235, an H200)")  # fmt: skip
    args = parser.parse_args(arguments)
    if args.kernels is not None:
        from benchmarks.gpu import kernel_table

        return kernel_table.show(args)
    families = args.families or (QUICK if args.quick else FAMILIES)
    seconds = (QUICK_DEADLINE if args.quick else DEADLINE) if args.deadline is None else args.deadline
    options = ("--quick",) if args.quick else ()
    end = time.monotonic() + seconds
    environment = dict(os.environ)
    if args.cache:
        environment["CUPY_CACHE_DIR"] = str(args.cache.absolute())
    if refusal := unusable(environment):
        print(f"benchmarks.gpu: {refusal}", file=sys.stderr)
        return 2
    warm((*worker, *families, *options), args.jobs, environment, time.monotonic() + WARMING * seconds)
    late = False
    for family in families:
        command = (*worker, family, "--done", str(args.results.absolute()), *options)
        late = late or not supervise(command, family, args.results, args.limit, end, environment)
    lines = read(args.results)
    print(report(lines))
    wrong = any(line.get("passed") is False or "error" in line for line in lines)
    return 1 if wrong else 3 if late else 0


def unusable(environment: dict[str, str]) -> str | None:
    """Return why minorm cannot be used here, or None if it can; compile its kernels for this Python if need be."""
    found = _python(environment, "import minorm")
    if found.returncode and "kernels" in found.stderr:
        print("the kernels for the CPU are not there for this Python: they are compiled first", flush=True)
        command = [sys.executable, "setup.py", "build_ext", "--inplace"]
        built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if built.returncode:
            return f"the kernels could not be compiled for {sys.version.split()[0]}: {_last(built.stderr)}"
    found = _python(environment, ABOUT)
    if found.returncode:
        return f"there is no GPU that can be used here: {_last(found.stderr).removeprefix('RuntimeError: cuda: ')}"
    print(found.stdout.strip(), flush=True)
    return None


def _python(environment: dict[str, str], program: str) -> Any:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def _last(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else "it says nothing"


def warm(command: tuple[str, ...], jobs: int, environment: dict[str, str], end: float) -> None:
    """Run every case once, without figures, in several processes at a time; what is compiled by `end` is."""
    start = time.monotonic()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": ROOT, "env": environment}
    running = [subprocess.Popen([*command, "--warm", str(i), str(jobs)], **quiet) for i in range(jobs)]
    for process in running:
        try:
            process.wait(max(0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    print(f"every case ran once, in {time.monotonic() - start:.0f} s and {jobs} processes", flush=True)


def supervise(
    command: tuple[str, ...], family: str, results: Path, limit: float, end: float, environment: dict[str, str]
) -> bool:
    """Run what is left of a family, in a new process after each lost case; False where the time was over before."""
    while True:
        if time.monotonic() >= end:
            return False
        again, before = watch(command, family, results, limit, end, environment), time.monotonic()
        if again is not None:
            return again and before < end


def watch(
    command: tuple[str, ...], family: str, results: Path, limit: float, end: float, environment: dict[str, str]
) -> bool | None:
    """One worker from start to end: True when the family is done, False at the deadline, None after a lost case."""
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    said: queue.Queue[str | None] = queue.Queue()
    errors: list[str] = []
    assert process.stdout is not None
    assert process.stderr is not None
    readers = [
        threading.Thread(target=_forward, args=(process.stdout, said), daemon=True),
        threading.Thread(target=errors.extend, args=(process.stderr,), daemon=True),
    ]
    for reader in readers:
        reader.start()
    begun: dict[str, Any] | None = None
    told = False
    while True:
        left = min(limit, end - time.monotonic())
        try:
            text = said.get(timeout=max(0.0, left))
        except queue.Empty:
            process.kill()
            process.wait()
            if time.monotonic() >= end:
                return False
            write(results, {**(begun or _nameless(family)), "error": f"no answer within {limit:g} s"})
            return None if begun else True
        if text is None:
            break
        line = json.loads(text)
        begun = {"family": line["family"], "case": line["case"]} if line.get("begun") else None
        if begun is None:
            write(results, line)
            told = "error" in line
    code = process.wait()
    readers[1].join()
    if code == 0:
        return True
    if begun is None and told:  # it said what it was
        return None
    how = f"killed by signal {-code}" if code < 0 else f"ended with code {code}"
    write(results, {**(begun or _nameless(family)), "error": f"{how}: {_last(''.join(errors))}"[:500]})
    return None if begun else True


def _forward(stream: Any, said: queue.Queue[str | None]) -> None:
    for text in stream:
        said.put(text)
    said.put(None)


def _nameless(family: str) -> dict[str, str]:
    return {"family": family, "case": "before the first case"}


if __name__ == "__main__":
    sys.exit(main())
