"""Plans that add up partial sums of the backward pass: parts of a result, and runs along which scale is constant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.kernels.gpu.launch import WARP
from minorm.kernels.gpu.plans import norm_plan
from minorm.kernels.gpu.plans.norm_arguments import Array, Type, scalars
from minorm.kernels.gpu.plans.structs import Struct
from minorm.kernels.gpu.program import Program
from minorm.normalization.equation import Equation
from minorm.normalization.nest import Nest

Run = Callable[..., Any]

grads_program = Program("norm_grads.cu")


def merge_parts(results: int, parts: int, stored: Type, out: Type, index: Type, equation: Equation | None) -> Run:
    """Return the plan that adds up partial sums (2, parts, results) to (2, results)."""
    plan = norm_plan.merge(results, parts)
    kernel = grads_program.kernel("merge_parts", stored, index, plan.splits, out)
    sizes, rule = (index.type(results), np.int32(parts)), scalars(equation)

    def run(partial: Array, stats: Array | None, result: Array) -> None:
        kernel(plan.grid, plan.block, (*sizes, partial, stats, *rule, result))

    return run


def merge_runs(
    runs: norm_plan.Runs,
    second: int,
    parameter: Type,
    out: Type,
    index: Type,
    equation: Equation | None = None,
    of_parameters: bool = True,
) -> Run:
    """Return the plan that adds up the sums of runs to ds and db. With an `equation`, also add up sum_g and sum_gx."""
    of_rows, of_params = runs.to_rows, runs.to_parameters
    row_team, param_team = (norm_plan.team(each.terms, index) for each in (of_rows, of_params))
    kernel = grads_program.kernel("merge_runs", out, index, parameter, row_team == WARP, param_team == WARP)
    loops = of_rows.packed(index, equation is not None), of_params.packed(index, of_parameters)
    packed, rule = (*map(Struct, loops), index.type(second)), scalars(equation)
    block = max(row_team if equation else 1, param_team if of_parameters else 1, 4 * WARP)
    beside = (block // WARP if threads == WARP else 1 for threads in (row_team, param_team))
    grid = (max(1, sum(-(-int(each["results"]) // teams) for each, teams in zip(loops, beside, strict=True))),)

    def run(partial: Array, s: Any, stats: Any, sums: Any, both: Any) -> None:
        kernel(grid, (block,), (*packed, partial, s, stats, *rule, sums, both))

    return run


def merge_given_runs(nest: Nest, results: int, parameter: Type, out: Type, index: Type) -> Run:
    """Return the plan that adds up the sums of `results` runs to ds and db; one kernel has written the whole sums."""
    runs = norm_plan.runs(nest)._replace(runs=norm_plan.Loops((), ()))
    return merge_runs(runs, results, parameter, out, index)
