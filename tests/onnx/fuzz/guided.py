"""The fuzz led by coverage: `python tests/onnx/fuzz/guided.py -max_total_time=600 [FOLDER]`.

    -runs=N            how many models          -max_total_time=S     or how many seconds
    -artifact_prefix=  where a model that fails is written; further options are libFuzzer's
    FOLDER             models of earlier runs; those that reach new lines are added to it

Atheris (the extra `fuzz`) notes which lines of minorm/onnx each model reaches, and changes again those that reached new
ones; the changes are those of mutations.py. It begins with the seeds of corpus.py and with kept/, to which keep.py adds
what a run found. The first model that fails ends the run: one that crashes, that raises what is no error of minorm
(case.py), or that takes more than 20 seconds or 2 GB. `python tests/onnx/fuzz/trial.py FILE` tries it again.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["minorm.onnx"]):
    import trial

LARGEST = 20_000  # bytes of a model
LIMITS = ("-timeout=20", "-rss_limit_mb=2048", f"-max_len={LARGEST}")


def fuzz(folder: str) -> None:
    """Ends the process."""
    tried = trial.Trial(folder)
    found, seeds = Path(folder, "found"), Path(folder, "seeds")
    for each in (found, seeds):
        each.mkdir()
    for i, seed in enumerate(tried.seeds):
        (seeds / f"{i}.onnx").write_bytes(seed.model.SerializeToString())
    given = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    options = [argument for argument in sys.argv[1:] if argument.startswith("-")]
    folders = [*(given or [str(found)]), str(seeds), str(trial.KEPT)]
    atheris.Setup([sys.argv[0], *LIMITS, *options, *folders], tried, custom_mutator=tried.changed)
    atheris.Fuzz()


def main() -> int:
    """libFuzzer ends the process in which it runs, so that is not the one which cleans up."""
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            fuzz(folder)
        _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
