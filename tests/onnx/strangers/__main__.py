"""`python -m tests.onnx.strangers [NAME ...]`: every family by both exporters, and how many do each thing right."""

from __future__ import annotations

import argparse
import json
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from minorm.onnx.graph.errors import ExportError
from tests.onnx.strangers.everything import FAMILIES
from tests.onnx.strangers.trial import Trial

STEPS: dict[str, Callable[[Trial], str]] = {
    "agrees": Trial.agrees,
    "counts": Trial.counts,
    "trains": Trial.trains,
    "to 13": lambda t: t.converts(13),
    "to 23": lambda t: t.converts(23),
    "goes out": Trial.goes_out,
    "float16": lambda t: t.in_type("float16"),
    "bfloat16": lambda t: t.in_type("bfloat16"),
    "float64": lambda t: t.in_type("float64"),
}


def expired(*_: Any) -> None:
    raise TimeoutError("more than 120 s")


def tried(step: Callable[[Trial], str], trial: Trial) -> str:
    signal.alarm(120)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return step(trial)
    except ExportError as error:
        return f"refused: {error}"
    except Exception as error:  # noqa: BLE001  whatever it is, it counts as a failure and is shown
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({where.filename.rsplit('/', 1)[-1]}:{where.lineno})"
    finally:
        signal.alarm(0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.onnx.strangers")
    parser.add_argument("names", nargs="*", help="families; default: all")
    parser.add_argument("--only", choices=("script", "dynamo"))
    parser.add_argument("--steps", nargs="*", default=list(STEPS))
    parser.add_argument("--opset", type=int, default=17)
    parser.add_argument("--json")
    asked = parser.parse_args()
    signal.signal(signal.SIGALRM, expired)
    rows: dict[str, dict[str, str]] = {}
    for name in asked.names or FAMILIES:
        for exporter in ("script", "dynamo"):
            if asked.only not in (None, exporter):
                continue
            began, label = time.perf_counter(), f"{name} {exporter}"
            try:
                trial = Trial(FAMILIES[name], exporter == "dynamo", asked.opset)
            except Exception as error:  # noqa: BLE001  PyTorch cannot write it: no file
                print(
                    f"{label}: no file ({type(error).__name__}: {str(error).strip().splitlines()[0][:150]})", flush=True
                )
                continue
            row = rows[label] = {step: tried(STEPS[step], trial) for step in asked.steps}
            row["free"] = "yes" if trial.free else "no"
            for step in asked.steps:
                if row[step]:
                    print(f"{label}: {step}: {row[step]}", flush=True)
            print(f"{label}: {'free' if trial.free else 'fixed'}, {time.perf_counter() - began:.1f} s", flush=True)
    families, free = {label.split()[0] for label in rows}, sum(row["free"] == "yes" for row in rows.values())
    print(f"{len(families)} families, {len(rows)} files, {free} with free lengths")
    for step in asked.steps:
        refused = sum(row[step].startswith("refused") for row in rows.values())
        right = sum(not row[step] for row in rows.values())
        print(f"{step:>10}: {right} of {len(rows)}" + (f", {refused} refused by name" if refused else ""))
    if asked.json:
        with open(asked.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
