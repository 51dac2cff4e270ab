"""Ctrl-C at any moment of a block that changes a mode: after it the mode is what it was."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import minorm as mn
import minorm_ext
from minorm.graph import trace
from minorm.normalization import running
from minorm_ext import no_switch
from tests.interrupts import at_every_line

BLOCKS: dict[str, Callable[[], Any]] = {
    "no_grad": mn.no_grad,
    "enable_grad": mn.enable_grad,
    "inference_mode": mn.inference_mode,
    "autocast": lambda: mn.autocast("cpu"),
    "autocast, disabled": lambda: mn.autocast("cpu", enabled=False),
    "no_stats_update": mn.no_stats_update,
    "redirected": lambda: running.redirected(print, bool),
}


def modes() -> list[Any]:
    state = trace.state
    return [mn.is_grad_enabled(), running.is_updating(), running._mode.take,
            state.calls, state.originals, state.cast, state.cast_types]  # fmt: skip


def inside(block: Callable[[], Any]) -> None:
    with block():
        pass


@pytest.mark.parametrize("name", BLOCKS)
def test_at_any_line(name: str) -> None:
    block, before = BLOCKS[name], modes()
    for _ in at_every_line(lambda _: inside(block)):
        assert modes() == before


AGAIN = 0.05  # seconds; where Python is in a callback of its garbage collection, it ignores what the handler raises


def forever(block: Callable[[], Any]) -> None:
    for _ in itertools.count():
        inside(block)


def stopped_after(seconds: float, block: Callable[[], Any]) -> None:
    """`forever`, until a signal comes whose handler raises KeyboardInterrupt; and again until it is seen.

    Outside of `forever` the handler raises nothing: on a busy machine the next signal comes before the timer is off.
    """

    def press(_: int, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code is not forever.__code__:
            frame = frame.f_back
        if frame is not None:
            raise KeyboardInterrupt

    handler = signal.signal(signal.SIGALRM, press)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)  # that of pytest's time limit
    try:
        forever(block)
    except KeyboardInterrupt:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *timer)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers that signal")
@pytest.mark.skipif(not minorm_ext.COMPILED, reason="only compiled code is not divided by signals")
@pytest.mark.parametrize("name", [*BLOCKS, "record"])
@pytest.mark.parametrize("count", [50, pytest.param(3000, marks=pytest.mark.slow)])
def test_by_a_signal_at_any_moment(name: str, count: int) -> None:
    block, before = {**BLOCKS, "record": trace.record}[name], modes()
    for k in range(count):
        stopped_after(1e-4 + k % 50 * 1e-6, block)
        assert modes() == before, f"after {k} signals"


@pytest.mark.parametrize("Switch", [minorm_ext.Switch, no_switch.Switch])
def test_both_kinds_of_switch(Switch: Any) -> None:
    class Owner:
        a, b = 1, 2

    owner, rising = Owner(), itertools.count(10)
    switch = Switch(owner, lambda: {"a": next(rising), "b": 5})
    with switch as entered:
        assert entered is switch
        assert (owner.a, owner.b) == (10, 5)
        with switch:
            assert owner.a == 11
        assert owner.a == 10
    assert (owner.a, owner.b) == (1, 2)
    begun = Switch(owner, {"a": 7}, True)
    assert owner.a == 7
    for expected in (7, 7):
        with begun:
            assert owner.a == expected
        assert owner.a == 1
    with pytest.raises(KeyError), switch:
        raise KeyError
    assert (owner.a, owner.b) == (1, 2)
    with pytest.raises(AttributeError, match="absent"):
        Switch(owner, {"absent": 1}).__enter__()
