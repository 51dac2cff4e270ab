"""mn.explain: the loops of DESIGN's table, the passes, the options, and the README it is printed in."""

from __future__ import annotations

import doctest
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
import minorm_ext
from minorm.diagnosis.explanation import CACHE, FUNCTIONS, Phase

README = Path(mn.__file__).parent / "kernels" / "README.md"
SOURCES = README.parents[2] / "minorm_ext" / "norm"

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
    assert mn.explain(F.batch_norm, (100_000, 64)).passes == 8  # the columns of a tile are taken together
    assert mn.explain(F.layer_norm, (4, 300_000), 300_000).passes == 8


@pytest.mark.skipif(not minorm_ext.COMPILED, reason="NumPy takes each operation over all of x")
def test_passes_that_an_activation_saves() -> None:
    shape = (8, 4, 8, 8)
    plain, relu = mn.explain(F.batch_norm, shape), mn.explain(F.batch_norm, shape, activation="relu")
    both = mn.explain(F.batch_norm, shape, activation="relu", residual=shape)
    assert (plain.passes, relu.passes, both.passes) == (5, 6, 8)  # y; then the residual and its gradient
    assert (plain.saved, relu.saved, both.saved) == (0, 4, 5)
    assert "reads dy, y and x again, writes dx and dresidual" in str(both)
    assert "separate operations would take 5 more" in str(both)
    apart = mn.explain(F.batch_norm, shape, activation="relu", compute_dtype="float64")
    assert (apart.saved, [phase.name for phase in apart.backward]) == (0, ["relu", "sums", "input"])


def test_strategies_on_both_sides_of_each_condition() -> None:
    at_most, more = mn.explain(F.batch_norm, (80, 16, 32, 32)), mn.explain(F.batch_norm, (81, 16, 32, 32))
    assert at_most.nbytes == 5 << 20
    assert (at_most.strategy, more.strategy) == ("resident", "streamed")
    assert (at_most.plan["stores"], more.plan["stores"]) == ("cached", "nt_rows")
    assert "results     around the cache, the whole lines of each row" in str(more)
    table = mn.explain(F.batch_norm, (64, 10))
    assert table.strategy == "columns"
    assert "cut         10 statistics side by side, 25 rows as one, 1 part" in str(table)
    short = mn.explain(F.instance_norm, (8, 16, 4, 4))
    assert short.plan["short"]
    assert short.plan["parameters"] == "each row"
    long = mn.explain(F.layer_norm, (8, 100_000), 100_000)
    assert not long.plan["short"]
    assert long.plan["chunks"] == 25
    assert "resident: long rows, a parameter for each element" in str(long)
    assert mn.explain(F.group_norm, (8, 64, 56, 56), 8).plan["parameters"] == "each run"
    biased = mn.explain(F.normalization, (6000, 256), axes=(1,), bias=(1, 256))
    assert biased.plan["stores"] == "nt_rows"  # the loop that keeps parameters in registers takes a scale
    assert mn.explain(F.layer_norm, (20480, 100), 100, dtype="float64").plan["stores"] == "nt_gathered"


def _table(heading: str) -> list[list[str]]:
    """The rows of the table in the README that begins with this row."""
    lines = README.read_text("utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(heading))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().strip("`") for cell in line.removeprefix("|").removesuffix("|").split("|")])
    return rows


def _planned(code: str) -> tuple[str, str, str]:
    plan = eval(f"mn.explain({code})", {"mn": mn, "F": F}).plan
    rows = {True: "short", False: "long", None: ""}[plan.get("short")]
    return plan["strategy"], rows, plan["stores"]


STRATEGIES = _table("| x and its rows |")


@pytest.mark.parametrize("row", STRATEGIES, ids=lambda row: f"{row[1]}, {row[3]}, {row[5]}")
def test_the_table_of_the_readme_is_what_the_plan_says(row) -> None:
    _, strategy, rows, results, file, example, other = row
    assert _planned(example) == (strategy, rows, results)
    assert _planned(other) != (strategy, rows, results)
    assert (SOURCES / file).exists()


def test_the_table_of_the_readme_has_every_strategy_and_every_way_to_store() -> None:
    plan = (SOURCES / "plan.pxd").read_text("utf-8")
    for name, column in (("Strategy", 1), ("StorePath", 3)):
        members = re.search(rf"cdef enum {name}:[^\n]*\n((?: +\w+ .*\n)+)", plan)
        assert members is not None
        found = {word.lower() for word in re.findall(r"^ +([A-Z_]+)\b", members[1], re.MULTILINE)}
        assert found == {row[column] for row in STRATEGIES}


@pytest.mark.parametrize("row", _table("| | file | function |"), ids=lambda row: f"{row[1]}: {row[2]}")
def test_the_route_of_the_readme_names_functions_that_are_there(row) -> None:
    _, file, function, _ = row
    text = (README.parents[2] / file).read_text("utf-8")
    assert re.search(rf"^(cdef .*|def |static .*NAME\(){function}\b", text, re.MULTILINE), f"{file} has no {function}"


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
    assert odd.copied == "the memory order of x needs more loops than a kernel has"
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
    with pytest.raises(TypeError, match="explain: residual is True; expected a tuple of ints, its shape"):
        mn.explain(F.batch_norm, (3, 4), residual=True)
    with pytest.raises(TypeError, match="explain: shape is 64; expected a tuple of ints"):
        mn.explain(F.batch_norm, 64)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="num_groups=3 must divide channels=8"):
        mn.explain(F.group_norm, (2, 8, 4), 3)
    with pytest.raises(TypeError, match="num_groups"):
        mn.explain(F.group_norm, (2, 8, 4))


@pytest.mark.parametrize(("page", "count"), [("README.md", 3), ("EXPLAINED.md", 11)])
def test_the_examples_of_the_pages_print_what_they_show(page: str, count: int) -> None:
    file = str(README.with_name(page))
    failed, tried = doctest.testfile(file, module_relative=False, globs={"mn": mn, "F": F}, encoding="utf-8")
    assert (failed, tried) == (0, count)
