"""The double refuses what CuPy refuses, and knows CuPy's names, arguments and loops: compared where CuPy is installed.

CuPy can be imported without a driver; only arrays cannot be made then.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cublas_double
import cublas_types
import cupy_cuda
import cupy_double
import cupy_functions
import cupy_orders
import cupy_types
import ml_dtypes
import numpy as np
import pytest

bfloat16 = np.dtype(ml_dtypes.bfloat16)
OURS = {"transfers"}  # what the double has beyond CuPy


@pytest.fixture(scope="module")
def real() -> Any:
    cupy = pytest.importorskip("cupy")
    if not cupy.__version__.startswith("14.2."):
        pytest.skip(f"the tables are those of CuPy 14.2; {cupy.__version__} is installed")
    return cupy


def arguments(function: Any) -> str:
    """The arguments of a function without their annotations."""
    parameters = inspect.signature(function).parameters.values()
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    return str(inspect.Signature(plain))[1:-1]


@pytest.mark.parametrize("name", cupy_types.UFUNCS)
def test_loops_are_cupys(name: str, real: Any) -> None:
    theirs = [loop for loop in getattr(real, name).types if not set(loop) & set("FDV")]  # no complex numbers here
    assert ["->".join(loop) for loop in cupy_types.loops(cupy_types.UFUNCS[name])] == theirs


def test_loops_of_ufuncs_without_a_name_are_cupys(real: Any) -> None:
    from cupy._core import _routines_math
    from cupy._sorting.search import _where_ufunc

    for text, theirs in ((cupy_types.CLIP, _routines_math._clip), (cupy_types.WHERE, _where_ufunc)):
        expected = [loop for loop in theirs.types if not set(loop) & set("FDV")]
        assert ["->".join(loop) for loop in cupy_types.loops(text)] == expected


@pytest.mark.parametrize("name", cupy_types.SIGNATURES)
def test_arguments_are_cupys(name: str, real: Any) -> None:
    assert cupy_types.SIGNATURES[name] == arguments(getattr(real, name))


def test_names_are_cupys(real: Any) -> None:
    for name in vars(cupy_double.module):
        if not name.startswith("__"):
            assert hasattr(real, name) or name in OURS, f"cupy.{name}"
    for name in vars(cupy_double.ndarray):
        if not name.startswith("_") and name != "memory":
            assert hasattr(real.ndarray, name), f"cupy.ndarray.{name}"
    for name in vars(cupy_double.module.cuda):
        if not name.startswith("__"):
            assert name == "cublas" or hasattr(real.cuda, name), f"cupy.cuda.{name}"  # it needs the library itself
    for name in vars(cupy_double.module.cuda.runtime):
        if not name.startswith("__"):
            assert hasattr(real.cuda.runtime, name), f"cupy.cuda.runtime.{name}"
    for name in ("aligned", "writeable"):
        assert not hasattr(cupy_double.module.ones(1).flags, name)


@pytest.mark.parametrize("name", ["gemmEx", "gemmStridedBatchedEx"])
def test_arguments_of_cublas_are_cupys(name: str, real: Any) -> None:
    """Read from the file of the module, which imports only where cuBLAS is: Cython keeps signatures as a text."""
    (file,) = (Path(real.__file__).parents[1] / "cupy_backends/cuda/libs").glob("cublas.*.so")
    found = re.search(rb"\b%s\(intptr_t handle[^)]*\)" % name.encode(), file.read_bytes())
    assert found is not None
    theirs = [word.split()[-1] for word in found[0].decode()[:-1].partition("(")[2].split(",")]
    assert list(inspect.signature(getattr(cublas_double, name)).parameters) == theirs


def test_numbers_of_cublas_are_cupys(real: Any) -> None:
    assert {real.cuda.runtime.CUDA_R_16F, real.cuda.runtime.CUDA_R_16BF} < set(cublas_types.TYPES)
    for name in ("CUDA_R_16F", "CUDA_R_16BF", "CUDA_R_32F", "CUDA_R_64F"):
        assert getattr(real.cuda.runtime, name) == getattr(cupy_double.module.cuda.runtime, name)
    from cupy.cuda import device

    assert callable(device.get_cublas_handle)
    assert hasattr(real.cuda.Device, "compute_capability")
    assert hasattr(real.cuda.Device, "attributes")
    assert "Can be set" in real.RawKernel.max_dynamic_shared_size_bytes.__doc__


def test_cublas_refuses_types_and_steps(cuda: Any) -> None:
    blas, x, one = cublas_double, cuda.ones((4, 4), np.float32), np.ones(1, np.float32)
    p, a, handle = x.data.ptr, one.ctypes.data, blas.HANDLE
    with pytest.raises(blas.CUBLASError, match="NOT_SUPPORTED"):
        blas.gemmEx(handle, 0, 0, 4, 4, 4, a, p, 0, 4, p, 0, 4, a, p, 2, 4, blas.CUBLAS_COMPUTE_32F, -1)
    with pytest.raises(blas.CUBLASError, match="INVALID_VALUE"):
        blas.gemmEx(handle, 0, 0, 4, 4, 4, a, p, 0, 3, p, 0, 4, a, p, 0, 4, blas.CUBLAS_COMPUTE_32F, -1)


def test_aliases_are_cupys(real: Any) -> None:
    for alias, name in cupy_types.ALIASES.items():
        assert getattr(real, alias).name == getattr(real, name).name


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (lambda x: x + np.ones(3, np.float32), "Unsupported type"),
        (lambda x: np.ones(3, np.float32) * x, "Unsupported type"),
        (lambda x: np.where(x > 0, x, np.zeros(())), "Unsupported type"),
        (lambda x: np.concatenate([x, np.ones(3)]), "Unsupported type"),
        (np.asarray, "Implicit conversion"),
        (np.ascontiguousarray, "Implicit conversion"),
        (lambda x: float(np.max(x, initial=0)), "initial"),
        (lambda x: np.sum(x, where=x > 0), "where"),
        (np.frompyfunc(abs, 1, 1), "NotImplemented"),
        (np.spacing, "NotImplemented"),
        (lambda x: x.__setitem__(0, np.ones(())), "Unsupported type"),
        (lambda x: np.ones(3).__iadd__(x), "Unsupported type"),
        (lambda x: np.cumsum(x.astype(bfloat16)), "bfloat16"),
        (lambda x: np.add.at(x.astype(bfloat16), [0], 1), "bfloat16"),
        (lambda x: np.left_shift(x, 1), "Wrong type"),
    ],
)
def test_what_cupy_refuses_is_refused(refused: Callable[[Any], Any], message: str, cuda: Any) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        refused(cuda.ones(3, np.float32))


def test_types_are_cupys(cuda: Any) -> None:
    x, b, n = cuda.ones(3, np.float32), cuda.ones(3, bfloat16), cuda.ones(3, np.int64)
    assert (x + 1).dtype == (x * 2.5).dtype == (2 - x).dtype == np.float32  # Python's numbers take the array's type
    assert (x * np.float64(2)).dtype == (n + 2.5).dtype == (n / n).dtype == np.float64
    assert (b + 1).dtype == np.exp(b).dtype == b.sum().dtype == b.mean().dtype == bfloat16
    assert np.where(b > 0, b, b).dtype == np.float32  # there is no loop of bfloat16
    assert b.sum(dtype=np.float64).dtype == (b / n).dtype == np.float64
    assert cuda.ones(3, bool).sum().dtype == np.int64
    x += n  # cast down, as it says
    assert x.dtype == np.float32
    with pytest.raises(TypeError, match="could not be coerced"):
        n += 0.5


def test_waiting_for_a_number_is_counted(cuda: Any) -> None:
    x = cuda.ones(3, np.float32)
    asks: list[Callable[[], Any]] = [
        x.get, x[0].item, x.tolist, x.nonzero, lambda: bool(x[0]), lambda: int(x[0]), lambda: float(x.sum()),
        lambda: x[x > 0], lambda: np.argwhere(x), lambda: repr(x), cuda.cuda.Device(0).synchronize,
    ]  # fmt: skip
    for number, ask in enumerate(asks, start=1):
        ask()
        assert cuda.transfers.to_host == number
    assert cuda.transfers.to_device == 0
    cuda.asarray(np.ones(3)), cuda.array([1, 2]), x[[0, 1]], x[np.array([2])]
    assert cuda.transfers.to_device == 4


def test_results_are_arrays_and_views_share_memory(cuda: Any) -> None:
    x = cuda.arange(6, dtype=np.float32).reshape(2, 3)
    for result in (x.sum(), x[0, 0], x.max(), np.argmax(x), np.count_nonzero(x), x.any()):
        assert isinstance(result, cuda.ndarray)
        assert result.shape == ()
    for view in (x[0], x.T, x.reshape(3, 2), x[:, None], x[..., ::2], np.broadcast_to(x, (4, 2, 3)), x[1, 2]):
        assert np.may_share_memory(view.memory, x.memory)
        assert view.base is x.base
    for copy in (x.copy(), x.astype(np.float32), x[[0]], x + 0, x.T.reshape(-1)):
        assert not np.may_share_memory(copy.memory, x.memory)
        assert copy.base is None
    assert np.isnan(cuda.empty((2, 2), np.float16).memory).all()  # what is read before it is written shows
    assert np.isnan(np.empty_like(x).memory).all()


@pytest.mark.parametrize("name", cupy_orders.CALLS)
def test_results_lie_in_cupys_order(name: str, cuda: Any) -> None:
    cupy_orders.check(cuda, name)


def test_every_function_has_a_case_of_its_order(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()

    def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            seen.add(name)
            return function(*args, **options)

        return call

    for name in cupy_types.SIGNATURES:
        monkeypatch.setattr(cuda, name, noting(name, getattr(cuda, name)))
        if name in vars(cuda.ndarray):
            monkeypatch.setattr(cuda.ndarray, name, noting(name, vars(cuda.ndarray)[name]))
    for name in cupy_orders.CALLS:
        cupy_orders.CALLS[name][0](cuda, cuda.ones((2, 3, 4, 5), np.float32).transpose(0, 3, 1, 2))
    assert cupy_types.SIGNATURES.keys() - seen == cupy_orders.NO_ORDER


ARRAYS: dict[str, np.ndarray] = {
    "rows": np.zeros((2, 3, 4), np.float32),
    "columns": np.zeros((2, 3, 4), np.float32, order="F"),
    "channels last": np.zeros((2, 4, 5, 3), np.float32).transpose(0, 3, 1, 2),
    "gaps": np.zeros((2, 6, 4), np.float32)[:, ::2],
    "backwards": np.zeros((2, 3, 4), np.float32).transpose(1, 0, 2)[:, ::-1],
    "broadcast": np.broadcast_to(np.zeros((3, 1), np.float32), (2, 3, 4)),
    "axes of one": np.zeros((1, 3, 1, 4), np.float32).transpose(0, 3, 1, 2),
}


@pytest.mark.parametrize("shape", [None, (5, 2, 3, 7), (4, 2, 7), (3, 2)])
@pytest.mark.parametrize("order", "CFAK")
@pytest.mark.parametrize("name", ARRAYS)
def test_orders_are_cupys(name: str, order: str, shape: Any, real: Any) -> None:
    """The rule of empty_like and of astype, which CuPy has as a function of an array of NumPy too."""
    from cupy._creation.basic import _new_like_order_and_strides

    array, lengths = ARRAYS[name], ARRAYS[name].shape if shape is None else shape
    letter, strides, _ = _new_like_order_and_strides(array, np.float64, order, shape, get_memptr=False)
    expected = np.empty(lengths, np.float64, letter).strides if strides is None else tuple(strides)
    assert cupy_orders.like(array, np.float64, order, shape).strides == expected


def test_of_values_for_one_place_any_may_be_the_last(cuda: Any) -> None:
    """On a device the threads come in any order: what relies on one shows here."""
    found = set()
    for _ in range(40):
        x = cuda.zeros(3)
        x[cuda.array([1, 1, 1])] = cuda.array([5.0, 6.0, 7.0])
        np.put_along_axis(x, cuda.array([0, 0]), cuda.array([1.0, 2.0]), 0)
        found.add(tuple(x.memory.tolist()))
    assert found == {(a, b, 0.0) for a in (1, 2) for b in (5, 6, 7)}


def test_devices_do_not_mix(cuda: Any) -> None:
    x = cuda.ones(2)
    with cuda.cuda.Device(1):
        y = cuda.ones(2)
        z = y + 1
    assert (x.device.id, y.device.id, z.device.id, y[0].device.id) == (0, 1, 1, 1)
    for compute in (lambda: x + y, lambda: y + 1, y.sum, lambda: y.fill(0), lambda: np.concatenate([x, y])):
        with pytest.raises(RuntimeError, match="current device is <CUDA Device 0>"):
            compute()
    assert y.copy().device.id == 0  # copies go to the current device
    assert np.full_like(y, 1).device.id == 0
    assert np.zeros_like(x, shape=()).shape == (2,)  # CuPy takes () for None


def test_everything_is_as_before_after_it() -> None:
    import sys

    from minorm import devices
    from minorm.kernels import select

    before = sys.modules.get("cupy"), dict(select._backends), list(devices._found)
    with cupy_functions.installed() as cupy:
        assert sys.modules["cupy"] is cupy
        devices.to_device(np.ones(2), "cuda")
    assert (sys.modules.get("cupy"), select._backends, devices._found) == before


def test_arrays_say_by_themselves_whether_they_are_in_rows(real: Any) -> None:
    """kernels/order.py asks CuPy's arrays, which is faster than their flags; a CuPy without it would be slower."""
    assert "_c_contiguous" in dir(real.ndarray)
    rows = cupy_double.module.array(np.zeros((3, 4), np.float32))
    assert [x._c_contiguous for x in (rows, rows.T, rows[:, ::2], rows[1])] == [True, False, False, True]


def test_a_pointer_plus_bytes_is_the_place_of_an_array() -> None:
    """As in CuPy: an array there has the memory that follows, and no other."""
    start = cupy_cuda.alloc(24)
    first, second = (cupy_double.ndarray((2,), np.float32, start + offset) for offset in (0, 8))
    first.fill(1)
    second.fill(2)
    assert second.data.ptr - first.data.ptr == 8
    np.testing.assert_array_equal(cupy_double.ndarray((4,), np.float32, start).get(), [1, 1, 2, 2])
