"""Pieces of Cython become one module, once; errors of the compilers name the line that they mean."""

from __future__ import annotations

import numpy as np
import pytest

from minorm.labs import compiling

pytest.importorskip("Cython")

C_ERROR = '''cdef extern from *:
    """
    int g(void) { return h; }
    """
    int g()
def f():
    return g()
'''
DOUBLE = "cdef double twice(double x) noexcept nogil:\n    return 2 * x\n"
CALL = "def call(double x):\n    return twice(x) + CHUNK\n"


def test_pieces_see_those_before_them_and_are_built_once() -> None:
    module = compiling.build(DOUBLE, CALL)
    assert module.call(1.5) == 3 + compiling.CHUNK
    assert compiling.build(DOUBLE, CALL) is module
    assert compiling.build(DOUBLE, CALL + "\n") is not module


def test_a_piece_may_be_indented_as_a_whole() -> None:
    """Text that a student writes inside a function is indented."""
    module = compiling.build(
        DOUBLE, "\n    def call(double x):\n        if x > 0:\n            return twice(x)\n        return 0\n    "
    )
    assert module.call(1.5) == 3


@pytest.mark.parametrize(
    ("piece", "said"),
    [
        ("def f(x):\n    return x +\n", "in: return x +"),
        ("def f():\n    for i in prange(3, nogil=True):\n        print(i)\n", "without gil, in: print"),
        (C_ERROR, "the C compiler says: .*h"),
    ],
)
def test_errors_name_the_line(piece: str, said: str) -> None:
    with pytest.raises(compiling.CompileError, match=said):
        compiling.build(piece)


def test_the_reader_reads_whole_chunks() -> None:
    x = np.ones(3 * compiling.CHUNK + 5, np.float32)
    for threads in (1, 2):
        compiling.reader(x, threads)()


def test_quickest_calls_in_turn() -> None:
    called: list[int] = []
    times = compiling.quickest([lambda: called.append(0), lambda: called.append(1)], rounds=3)
    assert called == [0, 1] * 3
    assert all(seconds >= 0 for seconds in times)
