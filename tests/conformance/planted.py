"""A runtime with a mistake a case, and what is to be said of each."""

from __future__ import annotations

PLANTED = """
import os, signal, time
import numpy as np
from minorm.conformance.minorm_calls import answer as minorm

def answer(case):
    if case.name == "training, float64":
        os.kill(os.getpid(), signal.SIGSEGV)
    if case.name == "training, float16":
        time.sleep(60)
    if case.name == "training, momentum 0":
        raise ValueError("no momentum of 0" + 300 * ".")
    results = minorm(case)
    if case.name == "training, float32":
        results[2] = results[2] * np.float32(1.01)
    if case.name == "training, momentum 1":
        results[1] = results[1].astype(np.float64)
    if case.name == "training, N = 1":
        results[0] = results[0][:, :2]
    if case.name == "training, epsilon 1":
        results[0][0, 0, 0, 0] = np.nan
    if case.name == "training, rank 2":
        case.inputs[3][:] = 7
    if case.name == "training, rank 5":
        del results[2]
    return results
"""
WRONG = {  # case: the finding about it
    "training, float32": "var is off by ",
    "training, float64": "crashed (SIGSEGV)",
    "training, float16": "gave no answer in 6 seconds",
    "training, momentum 1": "mean is float64(3,); expected float32(3,)",
    "training, N = 1": "y is float32(1, 2, 5, 2); expected float32(1, 3, 5, 2)",
    "training, epsilon 1": "y holds NaN or infinity instead of numbers",
    "training, rank 2": "it overwrote its inputs 3",
    "training, rank 5": "2 outputs; expected 3",
}
RIGHT = ("inference, float32", "training, momentum 0.5")
REFUSED = "training, momentum 0"
