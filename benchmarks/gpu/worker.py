"""One family of cases on a GPU, a line of JSON a case on standard output; started by benchmarks.gpu.

    python -m benchmarks.gpu.worker FAMILY [FAMILY ...] [--done FILE] [--quick] [--warm NUMBER OF]

    {"family": ..., "case": ..., "begun": true}      before it runs, so that a lost one is known
    {"family": ..., "case": ..., "seconds": ..., ...}    its figures
    {"family": ..., "case": ..., "error": "..."}     what it raised; the process ends then, as the device may be of no
                                                     further use to it

--done names a file of such lines: cases that have figures or an error there are left out. --warm runs each case of
part NUMBER of OF parts once, for the kernels that it compiles: no figure comes of that. --quick leaves out some cases
and measures with half as many runs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks.gpu import device_timing
from benchmarks.gpu.results import read
from benchmarks.gpu.work import families


def tell(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def run(names: list[str], done: set[tuple[str, str]], quick: bool = False) -> int:
    """Run the cases that are left; 1 after an error."""
    for family in names:
        for case, function in families(quick)[family]:
            if (family, case) in done:
                continue
            about = {"family": family, "case": case}
            tell({**about, "begun": True})
            start = time.perf_counter()
            try:
                figures = function()
            except Exception as error:  # noqa: BLE001  whatever it is: it costs one case
                where = traceback.format_exc(limit=-3)
                tell({**about, "error": f"{type(error).__name__}: {error}"[:500], "where": where[-1500:]})
                return 1
            tell({**about, "seconds": round(time.perf_counter() - start, 3), **figures})
    return 0


def warm(names: list[str], part: int, parts: int, quick: bool = False) -> int:
    """Run every case of a part once; what fails here fails again where it is told."""
    device_timing.WARMING = True
    every = [function for family in names for _, function in families(quick)[family]]
    for function in every[part::parts]:
        with contextlib.suppress(Exception):
            function()
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Cases of benchmarks.gpu, in this process.")
    parser.add_argument("families", nargs="+")
    parser.add_argument("--done")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--warm", nargs=2, type=int)
    args = parser.parse_args()
    if args.warm:
        return warm(args.families, *args.warm, args.quick)
    if args.quick:
        device_timing.RUNS //= 2
    done = read(Path(args.done)) if args.done else []
    return run(args.families, {(line["family"], line["case"]) for line in done}, args.quick)


if __name__ == "__main__":
    sys.exit(main())
