"""Real processes: the same bits on any number of them, and an end whatever one of them does. Needs mpi4py and mpich."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minorm.distributed import simulate
from tests.distributed.programs import digest, distance, train

FAILED = {  # what the last of two ranks does: the code of the job, and what it says
    "raises": (1, "rank 1 of 2: ValueError: the reason"),
    "ends before": (1, "Timeout (0:00:02)!"),  # MPI waits for it to start; then where that is
    "raises in a thread": (1, "KeyError: 'the reason'"),
    "raises afterwards": (1, "rank 1 of 2: ValueError: the reason"),
    "exits 3": (3, "rank 1 of 2: sys.exit(3)"),
    "exits 0": (1, "rank 0 waits in all_reduce for rank 1, which has ended"),
    "is killed": (9, "9"),  # the launcher's own words
    "calls another": (1, "rank 0 calls all_reduce, but rank 1 calls all_gather"),
    "sends another size": (1, "rank 0 sends an array of shape (2,), but rank 1 one of shape (3,)"),
    "returns early": (1, "rank 0 waits in all_reduce for rank 1, which has ended"),
    "is stuck": (1, "rank 0 of 2 waits 2 s in all_reduce (call 1) for the others"),
    "is stopped": (1, "rank 0 of 2 waits 2 s in all_reduce (call 1) for the others"),
}


def test_p1_two_processes_train_as_one_with_the_whole_batch(mpiexec: Any, tmp_path: Path) -> None:
    mpiexec.job(2, "as_one", str(tmp_path / "two.npz"))
    two = np.load(tmp_path / "two.npz")
    for dtype, most in ((np.float32, 1e-6), (np.float64, 1e-13)):
        one = simulate(1, lambda group, dtype=dtype: train(group, dtype=dtype))[0]["state"]
        found = {name: two[f"{np.dtype(dtype)} {name}"] for name in one}
        assert distance(found, one) <= most


@pytest.mark.parametrize(  # parts of 3 and 4 images; 5 images for 8 ranks
    ("steps", "batch_size", "carried"), [(6, 25, (1, 2, 3)), (6, 5, (2,)), (40, 25, (1, 2, 3))]
)
def test_p2_eight_ranks_on_one_two_and_three_processes(
    mpiexec: Any, steps: int, batch_size: int, carried: tuple[int, ...]
) -> None:
    expected = digest(simulate(8, lambda group: train(group, steps, batch_size, 75, dropout=0.2))[0])
    for processes in carried:
        lines = mpiexec.job(processes, "bits", "8", str(steps), str(batch_size), "0.2").lines
        assert [line["digest"] for line in lines] == [expected] * 8
        assert {line["processes"] for line in lines} == {processes}


@pytest.mark.parametrize(("ranks", "processes"), [(5, 3), (2, 2), (6, 2), (4, 4)])
def test_collectives_are_those_of_the_simulation(mpiexec: Any, ranks: int, processes: int) -> None:
    found = mpiexec.job(processes, "collectives", str(ranks)).lines
    alone = mpiexec.job(1, "collectives", str(ranks)).lines
    assert {line["digest"] for line in found} == {alone[0]["digest"]}
    assert found[0]["rest"] == [f"r{rank}" for rank in range(ranks)]
    if hasattr(os, "sched_getaffinity"):  # processes share the processors of their machine
        assert {line["threads"] for line in found} == {max(1, len(os.sched_getaffinity(0)) // processes)}


@pytest.mark.parametrize("what", FAILED)
def test_p3_p4_whatever_one_rank_does_the_job_ends_and_says_why(mpiexec: Any, what: str) -> None:
    code, said = FAILED[what]
    start = time.monotonic()
    ended = mpiexec.job(2, "wrong", what, code=code)
    assert time.monotonic() - start < 30  # a machine may be busy; without us these hang for ever
    assert said in ended.err + ended.out
    if what not in ("is killed", "raises in a thread"):
        assert ended.err.count(said) == 1, ended.err


def test_p5_a_loss_that_is_no_number_stops_all_ranks_and_is_said_once(mpiexec: Any) -> None:
    ended = mpiexec.job(2, "poisoned", code=1)
    assert [(line["step"], line["finite"]) for line in ended.lines] == [(3, True)] * 4
    assert ended.err.count("rank 2 of 4: the loss is nan") == 1


def test_p7_one_process_imports_no_mpi_even_under_a_launcher(mpiexec: Any) -> None:
    program = (
        "import sys, minorm, minorm.distributed as dist; print(dist.run(lambda g: g.size, ranks=3)); "
        "sys.exit(sum(name in sys.modules for name in ('mpi4py', 'cupy')))"
    )
    assert mpiexec(1, "-c", program).out.strip() == "[3, 3, 3]"
    subprocess.run([sys.executable, "-c", program], check=True, env=mpiexec.environment, timeout=60)
    quick = (
        "import sys, minorm; sys.exit(sum(name in sys.modules for name in ('mpi4py', 'cupy', 'minorm.distributed')))"
    )
    subprocess.run([sys.executable, "-c", quick], check=True, env=mpiexec.environment, timeout=60)


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to another process there")
def test_ctrl_c_stops_all_ranks_after_the_same_step(mpiexec: Any) -> None:
    job = subprocess.Popen(
        mpiexec.command(2, str(Path(__file__).with_name("job.py")), "interrupted"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=mpiexec.environment, start_new_session=True,
    )  # fmt: skip
    assert job.stdout is not None
    seen = [job.stdout.readline() for _ in range(2)]
    assert all("ready" in line for line in seen), seen
    job.send_signal(signal.SIGINT)
    out, err = job.communicate(timeout=60)
    assert job.returncode != 0
    assert "rank 0 of 2: stopped" in err
    stopped = {line.split('"stopped": ')[1] for line in out.splitlines() if "stopped" in line}
    assert len(stopped) == 1, out


@pytest.mark.parametrize("level", ["baseline", "v3"])
def test_processes_that_would_compute_other_bits_are_refused(mpiexec: Any, level: str) -> None:
    """The baseline rounds multiply-adds twice; the other levels agree, and may be mixed."""
    import minorm_ext

    if level == minorm_ext.levels()[-1] or level not in minorm_ext.levels():
        pytest.skip("this processor has no such level beside its best")
    job = [sys.executable, str(Path(__file__).with_name("job.py")), "settings"]
    command = [mpiexec.program, "-n", "1", *job, ":", "-n", "1", "-env", "MINORM_MAX_LEVEL", level, *job]
    done = subprocess.run(
        command, capture_output=True, text=True, env=mpiexec.environment, timeout=60, stdin=subprocess.DEVNULL,
        check=False,
    )  # fmt: skip
    refusal = "run: rounding of multiply-adds is once on process 0 and twice on process 1; expected the same"
    assert (done.returncode, refusal in done.stderr) == ((1, True) if level == "baseline" else (0, False)), done.stderr


def test_fewer_ranks_than_processes_are_refused(mpiexec: Any) -> None:
    ended = mpiexec.job(2, "bits", "1", "1", "5", "0", code=1)
    assert "run: there are 1 ranks, but 2 processes; expected at least one rank for each process" in ended.err


@pytest.mark.parametrize(
    ("variables", "blocked", "said"),
    [
        ({"PMI_SIZE": "2", "PMI_RANK": "0"}, "sys.modules['mpi4py'] = None; ", "pip install mpi4py"),
        (
            {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"},
            "",
            "the launcher has started 2 processes, but MPI sees 1; the launcher must be that of the MPI which mpi4py",
        ),
    ],
)
def test_a_launcher_that_cannot_help_is_named(mpiexec: Any, variables: Any, blocked: str, said: str) -> None:
    program = f"import sys; {blocked}import minorm.distributed as dist; dist.run(print)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**mpiexec.environment, **variables},
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert said in done.stderr


def test_the_labs_ranks_are_carried_by_real_processes(mpiexec: Any) -> None:
    program = (
        "from minorm.labs.ranks import simulate\n"
        "found = simulate(3, lambda rank: {'n': rank.number, 'total': rank.all_reduce([rank.number, 0.5])})\n"
        "print([(each['n'], each['total'].tolist()) for each in found])\n"
        "print(simulate(1, lambda rank: rank.size))\n"
    )
    ended = mpiexec(2, "-c", program)
    assert ended.out.splitlines() == ["[(0, [3.0, 1.5]), (1, [3.0, 1.5]), (2, [3.0, 1.5])]", "[1]"]  # said once


@pytest.mark.slow
def test_lab_9_runs_on_two_processes(mpiexec: Any) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    lab = Path(__file__).resolve().parents[2] / "examples/labs/solutions/lab09_sync_batch_norm.py"
    ended = mpiexec(2, "-W", "ignore", str(lab), MPLBACKEND="Agg")
    assert "added as a tree: of 1000 numbers, 0, 0 and 0 differ between 1 process and 2, 4, 8" in ended.out
