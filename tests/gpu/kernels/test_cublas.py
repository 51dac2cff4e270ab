"""cublas.py: the name of the library, and what it is given and says. Products in graphs: test_graphs.py."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import pytest


@pytest.fixture
def library(cuda: Any) -> Any:
    from minorm.kernels.gpu import cublas

    cublas._library.cache_clear()
    yield cublas
    cublas._library.cache_clear()


@pytest.mark.parametrize(
    ("platform", "version", "name"),
    [
        ("linux", 12090, "libcublas.so.12"),
        ("linux", 13010, "libcublas.so.13"),
        ("win32", 12090, "cublas64_12.dll"),
        ("win32", 13010, "cublas64_13.dll"),
    ],
)
def test_the_name_of_the_library(
    platform: str, version: int, name: str, library: Any, cuda: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(cuda.cuda.runtime, "runtimeGetVersion", lambda: version)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: name)
    assert library._library() == name


def test_a_status_is_told(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        cublasSetStream_v2 = staticmethod(lambda handle, stream: 7)

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Refusing)
    with pytest.raises(
        RuntimeError, match="matmul: cublasSetStream_v2 failed with status 7 while a CUDA graph was captured"
    ):
        library._checked("cublasSetStream_v2", 1 << 40, 0)


def test_addresses_of_64_bits_and_sizes_pass_whole(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    class Noting:
        cublasSetWorkspace_v2 = staticmethod(lambda *args: given.extend(args) or 0)

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Noting)
    library._checked("cublasSetWorkspace_v2", 0x7FFE_0000_1000, 0x7F00_0000_0200, 33 << 30)
    assert [argument.value for argument in given] == [0x7FFE_0000_1000, 0x7F00_0000_0200, 33 << 30]
