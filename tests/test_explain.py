"""mn.explain: the loops of DESIGN's table, the passes, the options, and the README it is printed in."""

from __future__ import annotations

import doctest
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm.explain import CACHE, FUNCTIONS, Phase

README = Path(mn.__file__).parent / "kernels" / "README.md"

LOOPS: list[tuple[Any, tuple[int, ...], tuple[Any, ...], dict[str, Any], Any, Any]] = [
    (F.batch_norm, (32, 64, 56, 56), (), {}, [(64, 3136, 1)], [(32, 200704, 0), (3136, 1, 0)]),
    (F.batch_norm, (32, 64, 56, 56), (), {"memory_format": "channels_last"}, [(64, 1, 1)], [(100352, 64, 0)]),
    (F.instance_norm, (8, 64, 56, 56), (), {}, [(8, 200704, 0), (64, 3136, 1)], [(3136, 1, 0)]),
    (F.group_norm, (8, 64, 56, 56), (8,), {}, [(8, 200704, 0), (8, 25088, 8)], [(8, 3136, 1), (3136, 1, 0)]),
    (F.group_norm, (8, 64, 56, 56), (8, 8, 8), {}, [(8, 200704, 0), (8, 25088, 1)], [(25088, 1, 0)]),
    (F.layer_norm, (8, 128, 768), (768,), {}, [(1024, 768, 0)], [(768, 1, 1)]),
    (F.rms_norm, (8, 128, 768), ((768,),), {}, [(1024, 768, 0)], [(768, 1, 1)]),
    (F.batch_norm, (32, 3, 8, 8), (), {"weight": (3, 8, 8), "bias": (3, 8, 8)}, [(192, 1, 1)], [(32, 192, 0)]),
    (F.group_norm, (8, 64, 9), (8,), {"weight": None, "bias": None}, [(64, 72, 0)], [(72, 1, 0)]),
    (F.mean_variance_norm, (8, 64, 9, 9), (), {}, [(64, 81, 0)], [(8, 5184, 0), (81, 1, 0)]),
    (F.normalization, (8, 64, 9, 9), (), {"axes": (1,)}, [(8, 5184, 0), (81, 1, 0)], [(64, 81, 0)]),
]


@pytest.mark.parametrize(("function", "shape", "args", "options", "keep", "reduce"), LOOPS)
def test_loops(function, shape, args, options, keep, reduce) -> None:
    nest = mn.explain(function, shape, *args, **options).nest
    assert list(nest.keep) == keep
    assert list(nest.reduce) == reduce


def test_passes_over_memory() -> None:
    large = mn.explain(F.batch_norm, (128, 64, 56, 56))
    assert large.row_bytes == 2 * 128 * 56 * 56 * 4 > CACHE
    assert not large.in_cache
    assert large.passes == 8
    assert large.floor == 8 * large.nbytes == 8 * 4 * 128 * 64 * 56 * 56
    for function, shape, argument in [
        (F.layer_norm, (40_000, 768), 768),
        (F.rms_norm, (40_000, 768), 768),
        (F.group_norm, (32, 64, 56, 56), 8),
        (F.instance_norm, (32, 64, 56, 56), None),
    ]:
        row = mn.explain(function, shape, *([] if argument is None else [argument]))
        assert row.in_cache
        assert row.passes == 5
    assert mn.explain(F.batch_norm, (100_000, 64)).passes == 8  # the lanes of a tile are taken together
    assert mn.explain(F.layer_norm, (4, 300_000), 300_000).passes == 8


def test_inner_forms() -> None:
    assert mn.explain(F.batch_norm, (32, 64, 56, 56)).form == "rows"
    assert mn.explain(F.instance_norm, (8, 16, 4, 4)).form == "short rows"
    assert mn.explain(F.layer_norm, (8, 100_000), 100_000).form == "rows, a parameter for each element"
    assert mn.explain(F.batch_norm, (64, 10)).form == "lanes"
    assert mn.explain(F.batch_norm, (8, 512, 7, 7)).form == "rows"
    far = mn.explain(F.batch_norm, (256, 512, 7, 7))
    assert far.form == "runs of all rows"
    assert far.passes == 8
    assert "all rows take 51.4 MB of x and dy" in str(far)


def test_statistics_that_are_given_take_one_phase_forward() -> None:
    found = mn.explain(F.batch_norm, (8, 16, 4, 4), training=False)
    assert found.equation is None
    assert found.forward == (Phase("apply", ("x",), ("y",)),)
    assert found.backward == (Phase("input", ("dy",), ("dx",)), Phase("sums", ("dy", "x")))
    assert found.passes == 6
    assert "statistics are given" in str(found)
    assert mn.explain(F.instance_norm, (8, 16, 4, 4), use_input_stats=False).forward == found.forward


def test_copies_are_told() -> None:
    odd = mn.explain(F.normalization, (6, 7, 8, 9, 4), axes=(0, 2, 4))
    assert odd.copied == "its own order takes more loops than a kernel has"
    wide = mn.explain(F.normalization, (6, 7, 8, 9), compute_dtype="float64")
    assert wide.copied is None
    assert wide.computed == np.float64
    assert "in float64" in str(wide)
    assert mn.explain(F.batch_norm, (6, 7, 8, 9), memory_format="channels_last").copied is None


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_normalization_of_every_type(function, dtype) -> None:
    needed = {"group_norm": (4,), "layer_norm": ((6, 5),), "rms_norm": (5,)}.get(function.__name__, ())
    found = mn.explain(function, (2, 8, 6, 5), *needed, dtype=dtype)
    text = str(found)
    assert text.startswith(f"{function.__name__} of 2x8x6x5 {dtype}")
    assert "statistics over" in text
    assert repr(found) == text
    assert found.nbytes == 480 * (2 if "16" in dtype else int(dtype[-2:]) // 8)


def test_what_is_observed_is_what_runs(rng) -> None:
    """The nest is the one that the kernels get when the function runs for real."""
    x = mn.tensor(rng.standard_normal((4, 6, 3, 5)).astype(np.float32))
    seen = []

    class Spy:
        def forward(self, nest, *rest):
            seen.append(nest)
            return mn.kernels.cpu.norm.forward(nest, *rest)

    F.group_norm(x, 3, mn.ones(6), mn.ones(6), backend=Spy())
    assert mn.explain(F.group_norm, x.shape, 3).nest is seen[0]  # plan keeps its nests


def test_nothing_large_is_touched() -> None:
    start = time.perf_counter()
    mn.explain(F.batch_norm, (128, 64, 112, 112))  # 400 MB each of x, y, dy and dx
    assert time.perf_counter() - start < 0.2


def test_backward_is_shown_also_where_gradients_are_off() -> None:
    with mn.no_grad():
        assert mn.explain(F.batch_norm, (4, 3, 2, 2)).backward
        assert not mn.is_grad_enabled()


def test_errors() -> None:
    with pytest.raises(TypeError, match=r"explain: function is 'relu'; expected one of F.batch_norm, F.instance_norm"):
        mn.explain(F.relu, (3, 4))
    with pytest.raises(ValueError, match=r"explain: memory_format='NHWC'; expected 'contiguous' or 'channels_last'"):
        mn.explain(F.batch_norm, (3, 4), memory_format="NHWC")
    with pytest.raises(ValueError, match=r"explain: shape \(0, 4\) has no elements"):
        mn.explain(F.batch_norm, (0, 4))
    with pytest.raises(ValueError, match=r"explain: shape \(4, -1\) has no elements"):
        mn.explain(F.batch_norm, (4, -1))
    with pytest.raises(TypeError, match="explain: shape is 64; expected a tuple of ints"):
        mn.explain(F.batch_norm, 64)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="num_groups=3 must divide channels=8"):
        mn.explain(F.group_norm, (2, 8, 4), 3)
    with pytest.raises(TypeError, match="num_groups"):
        mn.explain(F.group_norm, (2, 8, 4))


def test_the_examples_of_the_readme_print_what_it_shows() -> None:
    failed, tried = doctest.testfile(str(README), module_relative=False, globs={"mn": mn, "F": F}, encoding="utf-8")
    assert tried >= 8
    assert failed == 0
