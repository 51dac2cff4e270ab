"""Checks run where a form is new; what is kept is found by values and types, and what failed is not kept."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional
from minorm.functional.norm import call_table, ghost, renormalization, sample_norms
from minorm.functional.norm.call_table import MOST, calls, form_of, whole_numbers
from minorm.kernels import reference
from minorm.kernels.partial import PartialBackend
from minorm.normalization import call as call_module

F: Any = minorm.functional  # wrong types are what some of it is about


@pytest.fixture(autouse=True)
def empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "found", {})


def test_checks_run_once_for_a_form(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    check = sample_norms.check_types

    def counted(*args: Any, **given: Any) -> Any:
        seen.append(args)
        return check(*args, **given)

    monkeypatch.setattr(sample_norms, "check_types", counted)
    x, w = mn.randn(4, 6), mn.ones(6)
    for _ in range(3):
        F.layer_norm(x, 6, w)
        F.layer_norm(mn.randn(4, 6), 6, mn.randn(6))
    assert len(seen) == 1
    forms: list[Callable[[], Any]] = [
        lambda: F.layer_norm(x, (6,), w),
        lambda: F.layer_norm(x, 6),
        lambda: F.layer_norm(x, 6, w, eps=1e-3),
        lambda: F.layer_norm(x.double(), 6, w),
        lambda: F.layer_norm(x, 6, w.double()),
        lambda: F.layer_norm(mn.randn(5, 6), 6, w),
        lambda: F.layer_norm(x, 6, w, compute_dtype=mn.float64),
        lambda: F.layer_norm(x, 6, w, mask=mn.ones(4, 1, dtype=mn.bool)),
        lambda: F.layer_norm(x, 6, w, activation="relu"),
    ]
    for call in forms:
        before = len(seen)
        call()
        call()
        assert len(seen) == before + 1


def test_ghost_and_renormalization_check_once_for_a_form(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    for module in (ghost, renormalization):
        check = module.batch_axes
        monkeypatch.setattr(module, "batch_axes", lambda *args, check=check: (seen.append("axes"), check(*args))[1])
    mean, var, w = mn.zeros(3), mn.ones(3), mn.ones(3)
    forms: list[Callable[[Any], Any]] = [
        lambda x: F.ghost_batch_norm(x, mean, var, 4, w, training=True),
        lambda x: F.ghost_batch_norm(x, mean, var, 2, w, training=True),
        lambda x: F.ghost_batch_norm(x, mean, var, 4, training=True),
        lambda x: F.ghost_batch_norm(x, mean, var, 4, w, training=True, eps=1e-3),
        lambda x: F.batch_renorm(x, mean, var, w, training=True),
        lambda x: F.batch_renorm(x, mean, var, w, training=True, rmax=2.0),
        lambda x: F.batch_renorm(x.double(), mean, var, w, training=True),
    ]
    for number, call in enumerate(forms, 1):
        for _ in range(3):
            call(mn.randn(8, 3, 2))
        assert len(seen) == number
    for momentum in (0.9, 0.5, 0.75):  # belongs to no form, and is taken as it is given
        x = mn.randn(8, 3, 2)
        running = mn.zeros(3), mn.ones(3)
        F.batch_renorm(x, *running, w, training=True, momentum=momentum)
        np.testing.assert_allclose(running[0].numpy(), (1 - momentum) * x.numpy().mean((0, 2)), rtol=1e-5, atol=1e-7)
    for wrong, error, message in (
        (lambda x: F.batch_renorm(x, mean, var, w, training=True, rmax=True), TypeError, "rmax"),
        (lambda x: F.batch_renorm(x, mean, var, w, training=True, rmax=0.5), ValueError, "rmax=0.5"),
        (lambda x: F.ghost_batch_norm(x[:5], mean, var, 4, w, training=True), ValueError, "one value per channel"),
        (lambda x: F.ghost_batch_norm(x, mean, var, True, w, training=True), TypeError, "virtual_batch_size"),
    ):
        for _ in range(2):
            with pytest.raises(error, match=message):
                wrong(mn.randn(8, 3))


@pytest.mark.parametrize(
    ("right", "wrong", "error", "message"),
    [
        (lambda x: F.layer_norm(x, 6, eps=1.0), lambda x: F.layer_norm(x, 6, eps=True), TypeError, "eps is True"),
        (lambda x: F.layer_norm(x, 6), lambda x: F.layer_norm(x, 6.0), TypeError, "normalized_shape is 6.0"),
        (lambda x: F.layer_norm(x, (6,)), lambda x: F.layer_norm(x, (6.0,)), TypeError, "normalized_shape is 6.0"),
        (lambda x: F.group_norm(x, 1), lambda x: F.group_norm(x, True), TypeError, "num_groups is True"),
        (lambda x: F.group_norm(x, 2), lambda x: F.group_norm(x, 2.0), TypeError, "num_groups is 2.0"),
        (lambda x: F.mean_variance_norm(x, (1,)), lambda x: F.mean_variance_norm(x, (True,)), TypeError, "one of axes"),
        (lambda x: F.layer_norm(x, 6), lambda x: F.layer_norm(x.numpy(), 6), TypeError, "x is ndarray"),
        (lambda x: F.layer_norm(x, 6), lambda x: F.layer_norm(x.long(), 6), TypeError, "x is int64"),
        (lambda x: F.layer_norm(x, 6, mn.ones(6)), lambda x: F.layer_norm(x, 6, np.ones(6, "f")), TypeError, "weight"),
        (lambda x: F.layer_norm(x, 6), lambda x: F.layer_norm(x, 6, compute_dtype="f2"), TypeError, "compute_dtype"),
        (lambda x: F.layer_norm(x, 6), lambda x: F.layer_norm(x, 6, mask=mn.ones(4, 6)), TypeError, "mask is float32"),
    ],
)  # fmt: skip
def test_equal_is_not_enough(
    right: Callable[..., Any], wrong: Callable[..., Any], error: type[Exception], message: str
) -> None:
    x = mn.randn(4, 6)
    right(x)
    for _ in range(2):  # what failed is not kept
        with pytest.raises(error, match=message):
            wrong(x)
    right(x)


def test_what_can_change_has_no_form() -> None:
    x = mn.ones(2, 3)
    eps = mn.tensor(1.0)
    for backend, tensors, options in (
        (None, (x,), (eps,)),
        (None, (x,), (np.array(1.0),)),
        (None, (x,), ([1],)),
        (None, (x,), (whole_numbers((1.0,)),)),
        (object(), (x,), ()),  # there is no weak reference to it
        (None, (3,), ()),
    ):
        assert form_of("any", backend, tensors, options) is None
    assert form_of("any", PartialBackend(), (x,), ()) != form_of("any", None, (x,), ())
    assert form_of("any", None, (x, None), (1e-5,)) == form_of("any", None, (mn.zeros(2, 3), None), (1e-5,))
    assert whole_numbers([2, 3]) == whole_numbers((2, 3)) == (2, 3)
    x = mn.randn(4, 6)
    before = F.layer_norm(x, 6, eps=eps).numpy()
    eps.fill_(100.0)
    after = F.layer_norm(x, 6, eps=eps).numpy()
    assert abs(after).max() < 0.3 < abs(before).max()


def test_a_backend_that_is_handed_in_is_not_kept_alive() -> None:
    backend = PartialBackend()
    x = mn.randn(2, 3, 4, 4).requires_grad_()
    turned = mn.randn(2, 4, 4, 3).permute(0, 3, 1, 2)
    mean, var, mask = mn.zeros(3), mn.ones(3), mn.ones(2, 3, 4, 4, dtype=mn.bool)
    for y in (
        F.layer_norm(x, 4, backend=backend),
        F.batch_norm(x, mean, var, training=True, backend=backend, activation="relu"),
        F.batch_norm(x, mean, var, backend=backend),
        F.batch_norm(x, mean, var, training=True, backend=backend, mask=mask),
        F.batch_norm(turned, mean, var, training=True, backend=backend),
        F.batch_renorm(x, mean, var, training=True, backend=backend),
        F.ghost_batch_norm(x, mean, var, 1, training=True, backend=backend),
    ):
        del y
    assert len(calls.found) == 7
    gone = weakref.ref(backend)
    del backend
    gc.collect()
    assert gone() is None
    assert not calls.found


@pytest.mark.parametrize(
    "normalize",
    [
        lambda x, backend: F.batch_norm(x, mn.zeros(3), mn.ones(3), training=True, backend=backend),
        lambda x, backend: F.batch_norm(x, mn.zeros(3), mn.ones(3), backend=backend),
        lambda x, backend: F.batch_norm(x, None, None, training=True, backend=backend, activation="relu"),
        lambda x, backend: F.batch_renorm(x, mn.zeros(3), mn.ones(3), training=True, backend=backend),
        lambda x, backend: F.ghost_batch_norm(x, None, None, 2, training=True, backend=backend),
        lambda x, backend: F.group_norm(x, 3, backend=backend, mask=mn.ones(4, 1, 1, 1, dtype=mn.bool)),
    ],
)
def test_a_backend_lives_as_long_as_a_graph_that_calls_it(normalize: Callable[..., Any]) -> None:
    x = mn.randn(4, 3, 2, 2).requires_grad_()
    weights = mn.randn(4, 3, 2, 2)
    normalize(x, reference.norm).backward(weights)
    assert x.grad is not None
    expected, x.grad = x.grad.numpy(), None
    y = normalize(x, PartialBackend())
    gc.collect()
    y.backward(weights)
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), expected)


def test_wrappers_of_a_backend_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    resolve = call_module.resolve_backend
    monkeypatch.setattr(call_module, "resolve_backend", lambda *args: (made.append(args), resolve(*args))[1])
    first, second = PartialBackend(), PartialBackend()
    x = mn.randn(4, 3, 2, 2)
    for backend in (first, second):
        layer = mn.nn.BatchNorm2d(3, backend=backend)
        for _ in range(3):
            layer(x)
            layer(x, activation="relu")
    assert len(made) == 4
    assert [args[1].checked() for args in made] == [first, first, second, second]
    seen = []
    first.apply = lambda *args: (seen.append("new"), reference.norm.apply(*args))[1]  # a function that is replaced
    F.batch_norm(x, mn.zeros(3), mn.ones(3), mn.ones(3), mn.zeros(3), True, backend=first)
    assert seen == ["new"]


def test_the_table_is_bounded() -> None:
    for i in range(1, MOST + 5):
        calls.keep(("any", i), None)  # type: ignore[arg-type]
        assert len(calls.found) <= MOST


def test_each_thread_has_its_own_and_gets_the_same_bits() -> None:
    x = mn.randn(8, 6)
    expected = F.layer_norm(x, 6).numpy()
    tables, wrong = [], []

    def work() -> None:
        for n in range(1, 40):
            F.group_norm(mn.ones(n, 4), 2)
            if F.layer_norm(x, 6).numpy().tobytes() != expected.tobytes():
                wrong.append(n)
        tables.append(call_table.calls.found)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert {len(table) for table in tables} == {40}
    found = [call for table in (*tables, calls.found) for call in table.values()]
    assert len({id(call) for call in found}) == len(found)
