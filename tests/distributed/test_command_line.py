"""`minorm train` on several processes: one set of files, the same bytes on a laptop, and going on with fewer."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minorm import cli
from minorm.checkpoint import load_training
from minorm.training.run import BEST, CHECKPOINT, LOG

pytest.importorskip("rich")
pytest.importorskip("sklearn")
TRAIN = ("-m", "minorm.cli", "train")


@pytest.fixture
def few(tmp_path: Path) -> list[str]:
    """Return the options to train on a few images, where an epoch takes almost no time."""
    draw, path = np.random.default_rng(0), tmp_path / "few.npz"
    parts = {
        f"{kind}_{part}": draw.integers(0, 256, (count, 8, 8), np.uint8) if kind == "x" else np.arange(count) % 3
        for part, count in (("train", 48), ("test", 12))
        for kind in "xy"
    }
    np.savez(path, **parts)
    return ["--data", "numpy", "--path", str(path)]


def files(folder: Path) -> dict[str, bytes]:
    """Return the files of a run; of the report only the part above its times."""
    return {path.name: path.read_bytes().split(b"<h2>Time</h2>")[0] for path in folder.iterdir()}


def test_p2_p6_four_processes_are_killed_two_write_the_same_bytes(
    mpiexec: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["--epochs", "3", "--seed", "5"]
    laptop, cluster = tmp_path / "laptop", tmp_path / "cluster"
    assert cli.main(["train", "--ranks", "4", "--out", str(laptop), *words]) == 0
    assert "4 ranks on 1 process" in capfd.readouterr().out

    command = mpiexec.command(4, *TRAIN, "--distributed", "--out", str(cluster), *words)
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=mpiexec.environment)
    end = time.monotonic() + 60
    while not ((cluster / LOG).exists() and len((cluster / LOG).read_text().splitlines()) >= 2):
        assert time.monotonic() < end, "no epoch came to its end"
        assert job.poll() is None, job.communicate()[0]
        time.sleep(0.01)
    job.kill()
    job.communicate(timeout=60)
    done = load_training(cluster / CHECKPOINT)
    assert 1 <= done["epoch"] <= 3
    assert done["settings"]["ranks"] == 4

    ended = mpiexec(2, *TRAIN, "--distributed", "--resume", "--out", str(cluster))
    assert ended.out.count("4 ranks on 2 processes") == 1  # rank 0 alone speaks
    assert ended.out.count("done:") == 1
    assert files(cluster) == files(laptop)
    assert {CHECKPOINT, BEST, LOG, "report.html"} <= set(files(cluster))


def test_p8_several_processes_without_the_flag_are_a_wrong_usage(mpiexec: Any, tmp_path: Path) -> None:
    for words in ((), ("--resume",)):
        ended = mpiexec(2, *TRAIN, "--out", str(tmp_path / "out"), *words, code=2)
        assert ended.err.count("the launcher started 2 processes, and each would train its own model") == 1
        assert "--distributed" in ended.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "variables",
    [
        {"PMI_SIZE": "2", "PMI_RANK": "0"},
        {"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "0"},
        {"SLURM_NTASKS": "8", "PMIX_RANK": "0"},
    ],
)
def test_p8_every_launcher_is_recognised(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cli.main(["train", "--out", str(tmp_path / "out")]) == 2
    assert "add --distributed to train one model with all processes" in capfd.readouterr().err


def test_one_process_with_the_flag_writes_what_it_writes_without(mpiexec: Any, tmp_path: Path, few: list[str]) -> None:
    words = ["--epochs", "1", *few]
    assert cli.main(["train", "--out", str(tmp_path / "plain"), *words]) == 0
    assert cli.main(["train", "--ranks", "1", "--out", str(tmp_path / "one"), *words]) == 0
    mpiexec(1, *TRAIN, "--distributed", "--out", str(tmp_path / "flag"), *words)
    assert files(tmp_path / "plain") == files(tmp_path / "one") == files(tmp_path / "flag")


def test_errors_say_what_to_do(mpiexec: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str], few: list[str]) -> None:
    out = str(tmp_path / "run")
    assert cli.main(["train", "--ranks", "2", "--epochs", "1", "--out", out, *few]) == 0
    assert cli.main(["train", "--resume", "--ranks", "4", "--out", out]) == 1
    assert "ranks is 4; expected 2, as in the run in" in capfd.readouterr().err
    ended = mpiexec(3, *TRAIN, "--distributed", "--resume", "--out", out, code=None)
    assert ended.code != 0
    assert "there are 2 ranks, but 3 processes; expected at least one rank for each process" in ended.err
    ended = mpiexec(2, *TRAIN, "--distributed", "--epochs", "1", "--out", out, code=1)
    assert ended.err.count("rank 0 of 2: ValueError: " + out + " already holds a run") == 1
    assert "Traceback" not in ended.err


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to another process there")
@pytest.mark.parametrize("processes", [1, 2])
def test_ctrl_c_says_how_to_go_on(mpiexec: Any, tmp_path: Path, processes: int) -> None:
    out = tmp_path / "run"
    words = [*TRAIN, "--epochs", "1000", "--ranks", "2", "--out", str(out)]
    command = [sys.executable, *words] if processes == 1 else mpiexec.command(2, *words, "--distributed")
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=mpiexec.environment)
    end = time.monotonic() + 60
    while not ((out / LOG).exists() and len((out / LOG).read_text().splitlines()) >= 2):
        assert time.monotonic() < end
        time.sleep(0.01)
    job.send_signal(2)
    _, err = job.communicate(timeout=60)
    assert job.returncode == 130
    train = "minorm train" if processes == 1 else "mpiexec -n 2 minorm train --distributed"
    assert f"continue with: {train} --resume --out {out}" in err
    assert "Traceback" not in err
    assert load_training(out / CHECKPOINT)["epoch"] >= 1
