"""program.py: a kernel is compiled once, found again by its template arguments, and by the next process on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import nvrtc
import pytest

from minorm.devices import dtypes

FLOAT = dtypes.float32
KEY = ("row_forward", dtypes.bfloat16, FLOAT, FLOAT, dtypes.int32, 8, 2, 32, 1, False, FLOAT, 0)


def test_a_kernel_is_made_once_and_no_text_to_find_it_again(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from minorm.kernels.gpu import program

    made: list[str] = []

    class Module:
        def __init__(self, *, code: str, options: tuple[str, ...], name_expressions: list[str]) -> None:
            assert "__global__" in code
            assert options == ("-std=c++17", "-default-device")
            made.extend(name_expressions)

        def get_function(self, name: str) -> Any:
            return object()

    written: list[Any] = []
    monkeypatch.setattr(cuda, "RawModule", Module)
    monkeypatch.setattr(program, "expression", lambda *key: (written.append(key), "text")[1])
    rows = program.Program("norm_rows.cu")
    kernel = rows.kernel(*KEY)
    assert all(rows.kernel(*KEY) is kernel for _ in range(3))
    assert (made, written) == (["text"], [KEY])
    assert rows.kernel(*KEY[:-2], dtypes.float64, 0) is not kernel
    assert len(made) == 2


def test_a_launch_passes_its_constants_around_the_arrays(cuda: Any) -> None:
    from minorm.kernels.gpu.plans.structs import Struct
    from minorm.kernels.gpu.program import Launch

    calls: list[Any] = []
    struct = Struct(np.zeros((), [("a", "i4")]))
    run = Launch(lambda *args: calls.append(args), (3,), (64,), (struct, np.int32(5)), (np.float64(0.5),))
    run("x", "y")
    run("x", last=("number",))
    (grid, block, first), (_, _, second) = calls
    assert (grid, block) == ((3,), (64,))
    assert (first[0], first[2:4], second[2], second[4]) == (struct, ("x", "y"), "x", "number")
    assert [(each.fields.dtype, each.fields[()]) for each in (first[1], first[4])] == [("i4", 5), ("f8", 0.5)]
    assert first[1] is second[1]  # made once
    assert first[4] is second[3]


def test_a_second_call_plans_nothing(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Activations, sums, pooling, casts and copies look up one launch for each kernel."""
    import minorm as mn
    import minorm.functional as F
    from minorm.kernels.gpu import program

    x = mn.ones(2, 4, 6, 6, device="cuda", requires_grad=True)

    def step() -> None:
        x.grad = None
        y = F.max_pool2d(F.relu(x) + x, 2).permute(0, 2, 3, 1).clone().sum((0, 1)).sum()
        (y + F.adaptive_avg_pool2d(F.gelu(x), 1).to(mn.float16).to(mn.float32).sum()).backward()

    step()
    monkeypatch.setattr(program.Program, "kernel", lambda _, *key: pytest.fail(f"{key[0]} is planned again"))
    step()


def test_a_second_call_makes_no_text(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step of a small network, as often as it is called: nothing but looks into dictionaries."""
    import minorm as mn
    import minorm.functional as F
    from minorm.kernels.gpu import program

    x = mn.ones(6, 4, device="cuda", requires_grad=True)
    labels = mn.zeros(6, dtype=mn.int64, device="cuda")

    def step() -> None:
        x.grad = None
        F.cross_entropy(F.relu(F.layer_norm(x, 4)) * 2, labels).backward()

    step()
    monkeypatch.setattr(program, "expression", lambda *key: pytest.fail(f"{key[0]} is looked for by its text"))
    monkeypatch.setattr(program, "source", lambda name: pytest.fail(f"{name} is read again"))
    step()


def test_what_brings_the_compiler_is_told(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from minorm.kernels.gpu import program

    class Module:
        def __init__(self, **options: Any) -> None: ...

        def get_function(self, name: str) -> Any:
            raise RuntimeError("catastrophic error: cannot open source file cuda_fp16.h")

    monkeypatch.setattr(cuda, "RawModule", Module)
    with pytest.raises(RuntimeError, match=r"cuda_fp16.h") as error:
        program.Program("norm_rows.cu").kernel(*KEY)
    assert "row_forward<__nv_bfloat16" in error.value.__notes__[0]
    assert "pip install 'cupy-cuda12x[ctk]>=14.2'" in error.value.__notes__[0]


class Loaded:
    """A stand-in for cupy.cuda.function.Module, which needs a driver."""

    def load(self, binary: bytes) -> None:
        self.binary = binary

    def _set_mapping(self, mapping: dict[str, str]) -> None:
        self.mapping = mapping


@pytest.mark.skipif(not nvrtc.available, reason="no NVRTC, or no headers for it")
def test_cupy_compiles_with_its_own_options_and_finds_it_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RawModule without the driver uses CuPy's paths to the headers, its options and its folder of compiled kernels.

    CuPy before 14.2 compiled templates anew in every process; that is why the extras ask for 14.2.
    """
    cupy = pytest.importorskip("cupy")
    if not cupy.__version__.startswith("14.2."):
        pytest.skip(f"the driver is taken out of CuPy 14.2; {cupy.__version__} is installed")
    from cupy._core import core
    from cupy.cuda import _compiler_cache, compiler

    from minorm.kernels.gpu.source import OPTIONS, expression, source

    kept: list[Any] = []
    compilations: list[tuple[str, ...]] = []
    cached = compiler._compile_module_with_cache

    class Compiler(compiler._NVRTCProgram):  # type: ignore[misc,name-defined]
        def compile(self, options: tuple[str, ...] = (), log_stream: Any = None) -> Any:
            compilations.append(options)
            return super().compile(options, log_stream)

    monkeypatch.setattr(compiler, "_kernel_cache_backend", _compiler_cache.DiskKernelCacheBackend(str(tmp_path)))
    monkeypatch.setattr(compiler, "_NVRTCProgram", Compiler)
    monkeypatch.setattr(compiler.function, "Module", Loaded)
    monkeypatch.setattr(compiler, "_get_arch_for_options_for_nvrtc", lambda arch=None: (f"-arch=sm_{arch}", "cubin"))
    monkeypatch.setattr(compiler, "_compile_module_with_cache", lambda *a, **k: kept.append(cached(*a, **k)))
    name, code = expression(*KEY), source("norm_rows.cu")
    options = {"arch": "90", "prepend_cupy_headers": False, "name_expressions": (name,)}
    for _ in range(2):
        core.compile_with_cache(code, OPTIONS, **options)
    first, second = kept
    assert first.binary == second.binary
    assert first.binary[:4] == b"\x7fELF"
    assert first.mapping == second.mapping == {name: first.mapping[name]}
    of_kernel = [options for options in compilations if "-arch=sm_90" in options]
    assert len(of_kernel) == 1  # the other question is which NVRTC this is
    assert "-ftz=true" in of_kernel[0]  # as docs/gpu.md says
