"""The choice of kernels, the number of threads, and what a fork leaves of them."""

from __future__ import annotations

import functools
import os
import platform
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import minorm_ext
from minorm_ext.baseline import machine


def in_a_new_process(
    program: str, *options: str, folder: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))} | environment,
    )


def test_levels_are_ordered_and_begin_with_the_baseline() -> None:
    known = ("baseline", "v3", "v4", "amx")
    levels = minorm_ext.levels()
    assert levels[0] == "baseline"
    assert list(levels) == sorted(levels, key=known.index)
    assert set(levels) <= set(machine.built_levels())


def test_levels_are_those_the_processor_has() -> None:
    try:
        with open("/proc/cpuinfo") as file:
            flags = next(set(line.split()) for line in file if line.startswith("flags"))
    except (OSError, StopIteration):
        pytest.skip("no processor flags to compare with")
    v3 = {"avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}
    v4 = v3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
    assert machine.supports("v3") == (v3 <= flags)
    assert machine.supports("v4") == (v4 <= flags)
    assert not machine.supports("amx") or v4 | {"amx_tile", "amx_bf16"} <= flags  # Linux has to have it as well
    assert machine.supports("baseline")


REFUSED = "the operating system does not permit amx to this process"
AMX_MACHINE = """
    import importlib, types
    class Machine(types.ModuleType):  # of a processor with tiles, which notes for which levels permission is asked
        asked = []
        def __getattr__(self, name):
            return getattr(real, name)
        def built_levels(self):
            return "baseline", "v3", "v4", "amx"
        def supports(self, level):
            return True
        def permits(self, level):
            self.asked.append(level)
            return level != "amx" or PERMITTED
    import_module = importlib.import_module
    def imported(name):
        global real
        module = import_module(name)
        if name != "minorm_ext.baseline.machine":
            return module
        real = module
        return Machine(name)
    importlib.import_module = imported
    import minorm_ext
    print(*minorm_ext.machine.asked, "|", *minorm_ext.levels(), "|", minorm_ext.choice())
"""


@pytest.mark.parametrize(
    ("permitted", "cap", "asked", "levels", "why"),
    [
        (True, None, "baseline v3 v4 amx", "baseline v3 v4 amx", "the highest that was built"),
        (
            False,
            None,
            "baseline v3 v4 amx",
            "baseline v3 v4",
            "the operating system does not permit amx to this process",
        ),
        (True, "v3", "baseline v3", "baseline v3", "MINORM_MAX_LEVEL=v3; without it amx"),
        (True, "amx", "baseline v3 v4 amx", "baseline v3 v4 amx", "the highest that was built"),
    ],
)
def test_permission_is_asked_for_levels_that_may_run(
    permitted: bool, cap: str | None, asked: str, levels: str, why: str
) -> None:
    unset = "import os; os.environ.pop('MINORM_MAX_LEVEL', None)\n" if cap is None else ""
    program = unset + textwrap.dedent(AMX_MACHINE).replace("PERMITTED", str(permitted))
    run = in_a_new_process(program, **({} if cap is None else {"MINORM_MAX_LEVEL": cap}))
    assert run.stdout.strip() == f"{asked} | {levels} | {why}", run.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux") or platform.machine() != "x86_64", reason="Linux's permission")
def test_a_process_that_may_not_use_tiles_has_no_permission_for_them() -> None:
    program = """
        import ctypes, minorm_ext
        from minorm_ext.baseline import machine
        permitted = ctypes.c_ulong()
        failed = ctypes.CDLL(None).syscall(158, 0x1022, ctypes.byref(permitted))  # ARCH_GET_XCOMP_PERM
        print(not failed and permitted.value >> 18 & 1, int("amx" in minorm_ext.levels()))
    """
    held = in_a_new_process(program, MINORM_MAX_LEVEL="v4").stdout.split()
    assert held[-1] == "0"
    assert held[0] in ("0", "False")
    if machine.supports("amx"):
        permitted, runs = in_a_new_process(program, MINORM_MAX_LEVEL="amx").stdout.split()
        assert permitted == runs


def test_kernels_takes_the_best_level_and_remembers() -> None:
    module = minorm_ext.kernels("sums")
    assert module.__name__ == f"minorm_ext.{[level for level in minorm_ext.levels() if level != 'amx'][-1]}.sums"
    assert minorm_ext.kernels("sums") is module


@pytest.mark.parametrize("cap", ["baseline", "v3", "v4", "amx"])
def test_a_cap_in_the_environment_holds_the_level_down(cap: str) -> None:
    program = "import minorm_ext, minorm; print(*minorm_ext.levels()); minorm.show_config()"
    free, capped = (
        in_a_new_process("import os; os.environ.pop('MINORM_MAX_LEVEL', None)" * (not given) + "\n" + program, **given)
        for given in ({}, {"MINORM_MAX_LEVEL": cap})
    )
    all_levels, levels = (run.stdout.split("\n", 1)[0].split() for run in (free, capped))
    known = ("baseline", "v3", "v4", "amx")
    assert levels == [level for level in all_levels if known.index(level) <= known.index(cap)]
    said = dict(line.split(None, 1) for line in capped.stdout.splitlines()[1:])
    assert said["kernels"] == levels[-1]
    assert said["usable"] == ", ".join(levels)
    assert ("MINORM_MAX_LEVEL" in said["chosen"]) == (levels != all_levels)  # one above the processor's changes nothing


@pytest.mark.parametrize("cap", ["v5", "", "V3", "avx2"])
def test_a_cap_that_is_no_level_is_an_error(cap: str) -> None:
    run = in_a_new_process("import minorm", MINORM_MAX_LEVEL=cap)
    assert run.returncode == 1
    said = f"MINORM_MAX_LEVEL={cap!r} in the environment; expected baseline, v3, v4 or amx"
    assert said in run.stderr.splitlines()[-1]


@pytest.mark.parametrize("level", minorm_ext.levels())
def test_kernels_of_a_given_level(level: str) -> None:
    assert minorm_ext.kernels("products", level=level).__name__ == f"minorm_ext.{level}.products"
    known = {"amx": "v4"}.get(level, level)  # which has nothing but products
    assert minorm_ext.kernels("sums", level=level).__name__ == f"minorm_ext.{known}.sums"


def test_unknown_level_and_module_say_what_there_is() -> None:
    with pytest.raises(
        ValueError, match=r"level='v9' was not built, is beyond this processor or above MINORM_MAX_LEVEL; expected"
    ):
        minorm_ext.kernels("sums", level="v9")
    with pytest.raises(ImportError, match=r"module 'nothing' is not compiled for .*--only nothing"):
        minorm_ext.kernels("nothing")


def test_threads_start_as_the_processors_of_this_process_and_can_be_set() -> None:
    program = "import minorm_ext, os; print(minorm_ext.get_num_threads() == len(os.sched_getaffinity(0)))"
    if hasattr(os, "sched_getaffinity"):
        assert in_a_new_process(program).stdout == "True\n"
    before = minorm_ext.get_num_threads()
    try:
        minorm_ext.set_num_threads(3)
        assert minorm_ext.get_num_threads() == 3
    finally:
        minorm_ext.set_num_threads(before)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity here")
def test_threads_respect_a_smaller_affinity() -> None:
    program = """
        import os
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        import minorm_ext
        print(minorm_ext.get_num_threads())
    """
    assert in_a_new_process(program).stdout == "1\n"


@functools.cache
def usual_threads() -> int:
    return int(in_a_new_process("import minorm_ext; print(minorm_ext.get_num_threads())").stdout)


@pytest.mark.parametrize(
    ("value", "threads"),
    [("1", 1), ("1,4", 1), (" 1 , 2 ", 1), ("+1", 1), ("001", 1), ("1000000", None), ("2147483648,1", None)]
    + [(wrong, None) for wrong in ("", "abc", "0", "-3", "0,1", "1,", ",1", "1,0", "1,abc", "1 2", "1.0", "0x1", "1_0")]
    + [("9" * 20, None), ("\u0661", None)],
)
def test_the_environment_may_ask_for_fewer_threads(value: str, threads: int | None) -> None:
    """Where `threads` is None, a wrong or too large value changes nothing. libgomp itself says what it understood."""
    program = "import minorm_ext; print(minorm_ext.get_num_threads(), minorm_ext._wanted_threads())"
    result = in_a_new_process(program, OMP_NUM_THREADS=value, OMP_DISPLAY_ENV="true")
    found, wanted = result.stdout.split()
    assert int(found) == (threads or usual_threads())
    if minorm_ext.openmp() and minorm_ext.compiler().startswith("gcc"):
        assert ("Invalid value for environment variable OMP_NUM_THREADS" in result.stderr) == (wanted == "inf")
        if wanted != "inf":
            assert re.search(rf"OMP_NUM_THREADS = '{wanted}(,\d+)*'", result.stderr)


def test_a_list_of_threads_counts_by_its_first_number() -> None:
    result = in_a_new_process("import minorm_ext; print(minorm_ext._wanted_threads())", OMP_NUM_THREADS="4,1")
    assert result.stdout == "4\n"


def test_set_num_threads_wins_over_the_environment() -> None:
    program = """
        import minorm_ext
        from minorm_ext.baseline import machine
        minorm_ext.set_num_threads(3)
        print(minorm_ext.get_num_threads(), machine.team(3))
    """
    expected = 3 if minorm_ext.openmp() else 1
    assert in_a_new_process(program, OMP_NUM_THREADS="1").stdout == f"3 {expected}\n"


BINDINGS = [("OMP_PROC_BIND", value, "") for value in ("true", "close", "spread", "false")]
BINDINGS += [("OMP_PLACES", value, "") for value in ("threads", "cores", "sockets")]
BINDINGS += [("GOMP_CPU_AFFINITY", "all of them", "")]


@pytest.mark.skipif(not minorm_ext.openmp() or not hasattr(os, "sched_getaffinity"), reason="no affinity here")
@pytest.mark.parametrize(("name", "value", "before"), [*BINDINGS, ("OMP_PROC_BIND", "true", "torch")])
def test_threads_that_openmp_binds_are_all_at_work(name: str, value: str, before: str) -> None:
    """It binds the main thread to one processor as it is loaded, by us or, before us, by PyTorch, and that looks like a
    process which may use only one."""
    if before:
        pytest.importorskip(before)
    processors = sorted(os.sched_getaffinity(0))
    program = f"""
        import os
        {before and "import " + before}
        import minorm_ext
        from minorm_ext.baseline import machine
        threads = minorm_ext.get_num_threads()
        team = machine.team(threads)
        masks = [os.sched_getaffinity(int(task)) for task in os.listdir("/proc/self/task")]
        print(threads, team, sorted(set().union(*masks)))
    """
    value = " ".join(map(str, processors)) if name == "GOMP_CPU_AFFINITY" else value
    result = in_a_new_process(program, **{name: value})
    count = len(processors)
    assert result.stdout == f"{count} {count} {processors}\n", result.stderr


@pytest.mark.skipif(not minorm_ext.openmp() or not hasattr(os, "sched_getaffinity"), reason="no affinity here")
@pytest.mark.skipif(not minorm_ext.compiler().startswith("gcc"), reason="libgomp alone counts places")
def test_places_fewer_than_processors_are_as_many_threads() -> None:
    program = "import minorm_ext; print(minorm_ext.get_num_threads())"
    for name, value in (("OMP_PLACES", "{%d}"), ("GOMP_CPU_AFFINITY", "%d")):
        result = in_a_new_process(program, **{name: value % max(os.sched_getaffinity(0))})
        assert result.stdout == "1\n", result.stderr


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity here")
def test_a_smaller_affinity_wins_over_the_environment() -> None:
    program = """
        import os
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        import minorm_ext
        print(minorm_ext.get_num_threads())
    """
    assert in_a_new_process(program, OMP_NUM_THREADS="2", OMP_PROC_BIND="true").stdout == "1\n"


@pytest.mark.parametrize("n", [0, -1])
def test_threads_below_one(n: int) -> None:
    with pytest.raises(ValueError, match=rf"set_num_threads: n={n}; expected at least 1"):
        minorm_ext.set_num_threads(n)


@pytest.mark.parametrize("n", [1.5, "2", None, True])
def test_threads_of_a_wrong_type(n: object) -> None:
    with pytest.raises(TypeError, match=r"set_num_threads: n is a .*; expected an integer of at least 1"):
        minorm_ext.set_num_threads(n)  # type: ignore[arg-type]


def test_a_parallel_loop_gets_its_threads() -> None:
    assert machine.team(1) == 1
    assert machine.team(3) == (3 if minorm_ext.openmp() else 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("where", ["main thread", "other thread"])
def test_forked_children_compute(where: str) -> None:
    """Without ending the workers before a fork the first child would wait for them for ever."""
    program = f"""
        import os, signal, threading, warnings
        warnings.simplefilter("ignore")  # newer Pythons warn of a fork beside threads: that is the point here
        from minorm_ext.baseline import machine
        import minorm_ext

        def main():
            expected = machine.team(3)
            for _ in range(20):
                assert machine.team(3) == expected
                child = os.fork()
                if child == 0:
                    signal.alarm(5)
                    os._exit(0 if machine.team(3) == expected else 1)
                assert os.waitpid(child, 0)[1] == 0
                assert machine.team(3) == expected
            print("done", flush=True)

        if {where!r} == "other thread":
            machine.team(2)  # the main thread has workers of its own
            thread = threading.Thread(target=main)
            thread.start()
            thread.join()
        else:
            main()
    """
    result = in_a_new_process(program)
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr


@pytest.mark.skipif(not minorm_ext.compiler().startswith("gcc"), reason="libgomp alone is asked")
def test_idle_workers_sleep_soon_and_the_environment_is_left_alone() -> None:
    program = "import minorm_ext, os; os.system('echo left: $GOMP_SPINCOUNT'); print(os.environ.get('GOMP_SPINCOUNT'))"
    result = in_a_new_process(program, OMP_DISPLAY_ENV="verbose")
    if minorm_ext.openmp() and not os.environ.keys() & {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}:
        assert "GOMP_SPINCOUNT = '5000'" in result.stderr
        assert result.stdout.split("\n")[:2] == ["left:", "None"]


@pytest.mark.skipif(not minorm_ext.openmp(), reason="a serial build")
def test_the_users_own_waiting_is_respected() -> None:
    result = in_a_new_process("import minorm_ext", OMP_DISPLAY_ENV="verbose", GOMP_SPINCOUNT="77")
    assert "GOMP_SPINCOUNT = '5000'" not in result.stderr


def test_small_numbers_survive_the_import() -> None:
    """A library linked with -ffast-math would switch the whole process to flush-to-zero as it is loaded."""
    program = """
        import minorm_ext
        for level in minorm_ext.levels():
            minorm_ext.kernels("sums", level=level)
        print(5e-324 * 1.0 != 0.0, 2.2e-308 / 4.0 != 0.0)
    """
    assert in_a_new_process(program).stdout == "True True\n"


def test_not_compiled_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "minorm_ext").mkdir()
    shutil.copy(minorm_ext.__file__, tmp_path / "minorm_ext")
    # -S: without the finder of an editable install, which would lead to the compiled ones
    result = in_a_new_process("import minorm_ext", "-S", folder=tmp_path)
    where = tmp_path / "minorm_ext"
    assert f"ImportError: minorm_ext: the kernels are not compiled in {where}; these are the sources" in result.stderr
    assert "run it from another folder, or as `python -P`, or compile the kernels here: `pip install -e .`" in (
        result.stderr
    )
    assert result.stderr.count("Traceback") == 1
