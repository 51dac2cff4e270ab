"""Load, run and differentiate models that are broken in some way: `python tests/onnx/fuzz --cases 200000`.

    --start N    the number of the first case         --one N    this case alone, with its traceback
    --jobs N     processes at a time                  --chunk N  cases a process

Cases run in separate processes with a limit on memory, so that a crash costs a chunk and names its case. A case
fails that crashes, raises what is no error of minorm (see case.py), takes more than 1 second of processor time, or
512 MB more memory than the process had. Cases are numbered: the same number is the same file, as long as corpus and
mutations stay as they are.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import gc
import json
import linecache
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

# ruff: noqa: E402  they read it when they are imported
for threads in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(threads, "1")

sys.path.append(str(Path(__file__).resolve().parents[3]))  # a checkout need not be installed

import case as cases
import corpus

import minorm as mn
from minorm.kernels.cpu import memory as kernels

SECONDS, MEMORY = 1.0, 512 << 20
HANGS = 20.0  # seconds of processor time until a case counts as hanging
MARGIN = 1 << 30  # of address space, above which the system refuses


def memory(which: str) -> int:
    """Return this process's bytes now (VmRSS) or their peak since the last reset (VmHWM); 0 if the system is not
    Linux."""
    if sys.platform != "linux":
        return 0
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(which))


def count_anew() -> int:
    """Free idle memory and reset VmHWM; return the bytes that the process has now."""
    gc.collect()
    kernels.empty_cache()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return memory("VmRSS")


def address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def chunk(numbers: range, seeds: Any, report: Any) -> None:
    """Run the cases, one line of JSON for each that failed, and one at the end; the number of each before it begins."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    for module in list(sys.modules.values()):  # case.py looks at lines, which may change while this runs
        if getattr(module, "__name__", "").startswith("minorm"):
            linecache.getlines(getattr(module, "__file__", None) or "")
    with tempfile.TemporaryDirectory() as folder:
        if sys.platform == "linux":
            limit = address_space() + MARGIN
            resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        ends: collections.Counter[str] = collections.Counter()
        slowest = (0.0, 0)
        before, most = count_anew(), 0
        for number in numbers:
            os.pwrite(report.fileno(), b"%-12d\n" % number, 0)
            seconds = once(number, seeds, folder, report, ends)
            if seconds > SECONDS:  # another process may have slowed it
                seconds = min(seconds, once(number, seeds, folder, None, ends))
            name = cases.make(number, seeds, folder).name if seconds > SECONDS else ""
            slowest = max(slowest, (seconds, number))
            took = memory("VmHWM") - before
            if took > MEMORY:  # the first large case also pays for what a process sets up once
                before = count_anew()
                once(number, seeds, folder, None, ends)
                took = min(took, memory("VmHWM") - before)
            most = max(most, took)
            if took > MEMORY:  # and then it may well be slow
                say(report, number, "", f"it took {took >> 20} MB")
            elif seconds > SECONDS:
                say(report, number, name, f"it took {seconds:.2f} s")
            if took > MEMORY // 8:
                before = count_anew()
        report.seek(0, os.SEEK_END)
        report.write(json.dumps({"ends": ends, "slowest": slowest, "memory": most}).encode() + b"\n")
        report.flush()


def once(number: int, seeds: Any, folder: str, report: Any, ends: collections.Counter[str]) -> float:
    """Run one case; return the seconds that it took."""
    case = cases.make(number, seeds, folder)
    start = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, HANGS)
    signal.setitimer(signal.ITIMER_REAL, 10 * HANGS)  # for who waits without computing
    try:
        end = cases.run(case)
    except AssertionError as error:
        end = ""
        if report is not None:
            say(report, number, case.name, str(error))
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    if report is not None and end:
        ends[end] += 1
    return time.process_time() - start


def say(report: Any, number: int, name: str, text: str) -> None:
    report.seek(0, os.SEEK_END)
    report.write(json.dumps({"case": number, "seed": name, "what": text}).encode() + b"\n")
    report.flush()


def start(numbers: range, seeds: Any) -> tuple[int, Any]:
    """Start a process for these cases; return its id and its report."""
    report = tempfile.TemporaryFile()  # noqa: SIM115  the process writes it after this returns
    report.write(b"%-12d\n" % numbers.start)
    report.flush()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            chunk(numbers, seeds, report)
            code = 0
        except BaseException:  # noqa: BLE001  it must not return into the parent's code
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid, report


def finish(report: Any, status: int) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Return a process's failures and its counts; None for the counts if it did not come to its end."""
    report.seek(0)
    first, *rest = report.read().splitlines()
    lines = [json.loads(line) for line in rest]
    failures = [line for line in lines if "case" in line]
    end = next((line for line in lines if "ends" in line), None)
    if end is None:
        how = f"signal {signal.Signals(os.WTERMSIG(status)).name}" if os.WIFSIGNALED(status) else f"exit {status >> 8}"
        failures.append({"case": int(first), "seed": "", "what": f"the process died or hung: {how}"})
    return failures, end


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("cases", 20_000), ("start", 0), ("jobs", 1), ("chunk", 2000), ("one", -1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    mn.set_num_threads(1)
    seeds = corpus.seeds()
    if args.one >= 0:
        with tempfile.TemporaryDirectory() as folder:
            case = cases.make(args.one, seeds, folder)
            print(case.name)
            print(cases.run(case))
        return 0
    stop = args.start + args.cases
    waiting = [range(n, min(n + args.chunk, stop)) for n in range(args.start, stop, args.chunk)]
    running: dict[int, tuple[range, Any]] = {}
    failures: list[dict[str, Any]] = []
    ends: collections.Counter[str] = collections.Counter()
    slowest, memory = (0.0, 0), 0
    while waiting or running:
        while waiting and len(running) < args.jobs:
            numbers = waiting.pop(0)
            pid, report = start(numbers, seeds)
            running[pid] = (numbers, report)
        pid, status = os.wait()
        numbers, report = running.pop(pid)
        found, end = finish(report, status)
        failures += found
        for failure in found:
            print(f"case {failure['case']} ({failure['seed']}): {failure['what']}", flush=True)
        if end is None:
            ended = found[-1]["case"] + 1
            if ended < numbers.stop:
                waiting.insert(0, range(ended, numbers.stop))
        else:
            ends.update(end["ends"])
            slowest, memory = max(slowest, tuple(end["slowest"])), max(memory, end["memory"])
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = time.process_time() + children.ru_utime + children.ru_stime
    counts = ", ".join(f"{n} {name}" for name, n in sorted(ends.items()))
    print(f"{args.cases} cases in {total:.0f} s of one core: {counts}; {len(failures)} failures")
    print(f"slowest: {slowest[0]:.2f} s (case {slowest[1]}); most memory: {memory >> 20} MB")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
