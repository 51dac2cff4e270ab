"""The jobs that test_mpi.py runs under mpiexec: `python job.py NAME ARGUMENTS`, one function a job."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import threading
import time
from typing import Any

import numpy as np

import minorm as mn
import minorm.functional as F
from minorm import distributed as dist
from minorm import nn
from tests.distributed.programs import digest, train
from tests.distributed.test_process_group import keep, values


def say(group: Any, **facts: Any) -> None:
    """One line of JSON, in one piece."""
    os.write(1, (json.dumps({"rank": group.rank, **facts}) + "\n").encode())


def bits(ranks: str, steps: str, batch_size: str, dropout: str) -> None:
    def program(group: Any) -> None:
        found = train(group, int(steps), int(batch_size), 75, dropout=float(dropout))
        say(group, digest=digest(found), processes=group.processes)

    dist.run(program, ranks=int(ranks))


def as_one(out: str) -> None:
    """P1: the states of float32 and float64 in a file."""

    def program(group: Any) -> None:
        found = {kind: train(group, dtype=np.dtype(kind)) for kind in ("float32", "float64")}
        if group.rank == 0:
            np.savez(out, **{f"{k} {name}": v for k, each in found.items() for name, v in each["state"].items()})

    dist.run(program)


def collectives(ranks: str) -> None:
    def program(group: Any) -> None:
        found = [
            group.all_reduce(values(group.rank, 3)),
            group.all_reduce(values(group.rank, 70_001)),
            group.all_reduce(values(group.rank, 5000, np.float16)),
            group.all_reduce(np.append([group.rank, 1.0], values(group.rank, 3000, np.float64)), keep),
            group.all_reduce(np.append([group.rank, 1.0], values(group.rank, 4, np.float64)), keep),
            group.all_gather(values(group.rank, 1000)),
            group.broadcast(values(group.rank, 1000), group.size - 1),
            group.all_reduce(np.zeros((0, 2))),
        ]
        group.barrier()
        whole = hashlib.sha256(b"".join(array.tobytes() for array in found)).hexdigest()
        say(group, digest=whole, threads=mn.get_num_threads(), rest=group.all_gather_text(f"r{group.rank}", "names"))

    dist.run(program, ranks=int(ranks))


def wrong(what: str) -> None:
    """The last rank does something else than the others, which wait for it in an all_reduce."""
    if what == "ends before" and os.environ["PMI_RANK"] == "1":
        return
    if what != "ends before":
        dist.run(lambda group: None)  # MPI has started, however long that took: nothing below waits for an import

    def program(group: Any) -> None:
        group.barrier()
        if group.rank == group.size - 1:
            if what == "raises":
                raise ValueError("the reason")
            if what == "raises in a thread":
                threading.Thread(target=lambda: {}["the reason"]).start()
                time.sleep(1000)
            if what.startswith("exits"):
                sys.exit(int(what.split()[1]))
            if what == "is killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if what == "calls another":
                group.all_gather(np.ones(3))
            if what == "sends another size":
                group.all_reduce(np.ones(3))
            if what == "returns early":
                return
            if what == "is stuck":
                time.sleep(1000)
            if what == "is stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
        group.all_reduce(np.ones(2))
        group.barrier()
        if what == "raises afterwards":
            return

    dist.run(program, timeout=2 if what in ("ends before", "is stuck", "is stopped") else 60)
    if what == "raises afterwards" and os.environ["PMI_RANK"] == "1":
        raise ValueError("the reason")


def poisoned() -> None:
    """P5: NaN on one rank of four, on two processes."""

    def program(group: Any) -> None:
        mn.manual_seed(0)
        model = dist.DistributedDataParallel(nn.Linear(3, 2), group)
        for step in range(5):
            x = mn.ones(2, 3) * (float("nan") if step == 3 and group.rank == 2 else 1.0)
            try:
                model.backward(F.mse_loss(model(x), mn.zeros(2, 2)), 2)
            except dist.NonFiniteLoss:
                say(group, step=step, finite=all(bool(np.isfinite(p.array).all()) for p in model.parameters()))
                raise

    dist.run(program, ranks=4)


def interrupted() -> None:
    """Trains until Ctrl-C; says after which step each rank stopped."""

    def program(group: Any) -> None:
        model, step = dist.DistributedDataParallel(nn.Linear(2, 1), group), 0
        try:
            while True:
                model.backward(model(mn.ones(2, 2)).mean(), 2)
                step += 1
                if step == 5:
                    say(group, ready=True)
        except KeyboardInterrupt:
            say(group, stopped=step)
            raise

    dist.run(program)


def settings() -> None:
    """Call run, which refuses processes that would not compute the same."""
    dist.run(lambda group: None)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
