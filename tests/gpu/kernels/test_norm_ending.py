"""ending.cuh: a ReLU behind a normalization, and a residual before it, to the bits of the operations one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import bridge
import every_kernel
import instances
import numpy as np
import pytest
import shim
from test_norm import TYPES, Problem

from minorm.kernels import reference
from minorm.normalization.equation import Equation

pytestmark = pytest.mark.skipif(not shim.available, reason="no g++")
FORMS = ("batch", "batch, channels last", "instance", "groups", "groups, channels last", "layer", "layer, odd")
CASES = [*[(form, "float32") for form in FORMS], ("batch", "bfloat16 in float64"), ("batch, channels last", "float16")]


@pytest.fixture
def norm(request: pytest.FixtureRequest) -> Iterator[bridge.Norm]:
    with bridge.gpu_norm() as norm:
        if not prepared:
            for way in WAYS:
                instances.compiled_for(lambda w=way: everything(norm, w), lambda: every_kernel.forget(norm.norm))
            prepared.append(True)
        yield norm
        every_kernel.forget(norm.norm)


WAYS = ("in registers", "by chunks", "in clusters")
prepared: list[bool] = []  # are the kernels compiled?


def everything(norm: bridge.Norm, way: str) -> None:
    """All calls of this file."""
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        if way == "by chunks":
            every_kernel.by_chunks(norm.norm, patch)
        if way == "in clusters":
            every_kernel.in_clusters(norm.norm, patch)
        for form, types in CASES:
            list(Ended(form, types).pairs(norm))


class Ended(Problem):
    """A problem whose results go on: some are NaN, which a ReLU keeps, and some 0."""

    def __init__(self, form: str, types: str) -> None:
        stored, self.computed, of_parameters = TYPES[types]
        super().__init__(form, stored, of_parameters)
        self.residual = np.empty_like(self.x)
        self.residual[...] = np.random.default_rng(7).standard_normal(self.x.shape)
        self.residual[(0,) * self.x.ndim] = np.nan

    def forward(self, norm: Any, **options: Any) -> tuple[Any, Any]:
        return norm.forward(self.nest, self.x, self.s, self.b, Equation(), self.computed, **options)

    def backward(self, norm: Any, dy: Any, stats: Any, needs: tuple[bool, bool], **options: Any) -> tuple[Any, ...]:
        return norm.backward(self.nest, dy, self.x, stats, self.s, Equation(), needs, self.computed, **options)

    def pairs(self, norm: bridge.Norm) -> Iterator[tuple[str, Any, Any]]:
        """(name, result of one pass, result of the operations one by one)."""
        maps = reference.elementwise
        plain, stats = self.forward(norm)
        for residual in (None, self.residual):
            there = over(norm, residual)
            y, found = self.forward(norm, activation="relu", residual=there)
            yield "y", y, maps.relu(plain if residual is None else plain + residual)
            yield "statistics" if residual is None else "statistics beside a residual", found.block, stats.block
            given = self.nest, self.x, stats, self.s, self.b, self.computed
            yield "apply", norm.apply(*given, activation="relu", residual=there), y
            masked = maps.relu_grad(self.dy, y)
            for needs in ((True, True), (True, False))[: 1 if residual is None else 2]:
                dresidual = None if residual is None else over(norm, np.full_like(self.x, 5))
                gradients = self.backward(norm, self.dy, stats, needs, y=over(norm, y), dresidual=dresidual)
                if dresidual is not None:
                    yield "dresidual", dresidual.memory, masked
                yield from zip(("dx", "ds", "db"), gradients, self.backward(norm, masked, stats, needs), strict=True)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("form", "types"), CASES)
def test_it_is_what_the_operations_are_one_by_one(
    form: str, types: str, way: str, norm: bridge.Norm, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "by chunks":
        every_kernel.by_chunks(norm.norm, monkeypatch)
    if way == "in clusters":
        every_kernel.in_clusters(norm.norm, monkeypatch)
    for name, found, expected in Ended(form, types).pairs(norm):
        if expected is None:
            assert found is None
            continue
        assert found.dtype == expected.dtype
        # To the bit; but where y or a residual takes registers, rows are cut otherwise, and sums have another order.
        cut = way != "by chunks" and name in ("statistics beside a residual", "dx", "ds", "db")
        error = 2 * instances.EPS[found.dtype] if cut else 0.0
        one, other = found.astype(np.float64), expected.astype(np.float64)
        np.testing.assert_allclose(one, other, rtol=error, atol=error * np.nanmax(abs(other)), err_msg=name)


def over(norm: bridge.Norm, array: Any) -> Any:
    return None if array is None else norm._over(array)


@pytest.mark.parametrize(("form", "forward", "backward"), [("batch", 1, 1), ("instance", 1, 2), ("layer", 1, 2)])
def test_it_takes_no_launch_of_its_own(form: str, forward: int, backward: int, norm: bridge.Norm) -> None:
    problem = Ended(form, "float32")
    before = shim.State.launches
    y, stats = problem.forward(norm, activation="relu", residual=over(norm, problem.residual))
    assert shim.State.launches - before == forward
    dresidual = over(norm, np.empty_like(problem.x))
    problem.backward(norm, problem.dy, stats, (True, True), y=over(norm, y), dresidual=dresidual)
    assert shim.State.launches - before == forward + backward


@pytest.mark.parametrize("right", ["value <= 0 ? C(0)", "rounded<T>(value) + residual", "if (y.v[v] <= 0)"])
def test_a_broken_kernel_is_found(right: str, norm: bridge.Norm, monkeypatch: pytest.MonkeyPatch) -> None:
    from minorm.kernels.gpu import program

    wrong = right.replace("value <= 0", "value > 1").replace("<=", "<").replace("rounded<T>(value) +", "")
    broken = program.source("norm_rows.cu").replace(right, wrong)
    assert broken != program.source("norm_rows.cu")
    monkeypatch.setattr(program, "source", lambda name: broken)
    for module in (norm.norm.norm_forward, norm.norm.norm_backward):
        monkeypatch.setattr(module, "rows_program", program.Program("norm_rows.cu"))
    with pytest.raises(AssertionError):
        test_it_is_what_the_operations_are_one_by_one("batch", "float32", "in registers", norm, monkeypatch)
