"""no_grad and its kin: as blocks, as decorators with and without parentheses, and for good."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import minorm as mn


@pytest.mark.parametrize("mode", [mn.no_grad, mn.inference_mode, lambda: mn.set_grad_enabled(False)])
def test_a_block_and_a_decorator(mode: Callable[[], Any]) -> None:
    x = mn.ones(2, requires_grad=True)
    with mode():
        assert not mn.is_grad_enabled()
        assert not (x * 2).requires_grad
    assert (x * 2).requires_grad
    double = mode()(lambda y: y * 2)
    assert mn.is_grad_enabled()
    assert not double(x).requires_grad
    assert (x * 2).requires_grad


def test_a_decorator_without_parentheses() -> None:
    x = mn.ones(2, requires_grad=True)
    for mode in (mn.no_grad, mn.inference_mode):
        assert not mode(lambda y: y * 2)(x).requires_grad
    with mn.no_grad():
        assert mn.enable_grad(lambda y: y * 2)(x).requires_grad
        assert (mn.inference_mode(False)(lambda y: y * 2))(x).requires_grad


def test_set_grad_enabled_holds_from_the_call_on() -> None:
    try:
        mn.set_grad_enabled(False)
        assert not mn.is_grad_enabled()
        with mn.set_grad_enabled(True):
            assert mn.is_grad_enabled()
        assert not mn.is_grad_enabled()
    finally:
        mn.set_grad_enabled(True)
    assert mn.is_grad_enabled()


def test_an_error_inside_ends_the_block() -> None:
    with pytest.raises(KeyError), mn.no_grad():
        raise KeyError
    assert mn.is_grad_enabled()


def test_a_decorated_generator_runs_in_the_mode_and_its_caller_does_not() -> None:
    w = mn.ones(2, requires_grad=True)
    seen: list[Any] = []

    @mn.no_grad()
    def steps(count: int) -> Any:
        try:
            for _ in range(count):
                answer = yield w * 2
                seen.append(answer)
        except KeyError:
            yield w * 3
        finally:
            seen.append(mn.is_grad_enabled())
        return "done"

    generator = steps(2)
    assert not next(generator).requires_grad
    assert (w * 2).requires_grad
    assert not generator.send("sent").requires_grad
    assert not generator.throw(KeyError()).requires_grad
    with pytest.raises(StopIteration, match="done"):
        next(generator)
    assert seen == ["sent", False]
    generator = steps(1)
    next(generator)
    generator.close()
    assert (seen[2:], mn.is_grad_enabled()) == ([False], True)
    with mn.no_grad():
        assert [y.requires_grad for y in mn.enable_grad(lambda: (yield w * 2))()] == [True]


def test_a_decorated_coroutine_runs_in_the_mode() -> None:
    w = mn.ones(2, requires_grad=True)

    async def pause() -> None:
        await asyncio.sleep(0)

    @mn.inference_mode()
    async def predicted() -> bool:
        await pause()
        return (w * 2).requires_grad

    async def both() -> list[Any]:
        async def other() -> bool:
            await pause()
            return (w * 2).requires_grad

        return await asyncio.gather(predicted(), other(), predicted())

    assert asyncio.run(both()) == [False, True, False]


def test_other_blocks_decorate_generators_too() -> None:
    layer = mn.nn.BatchNorm1d(2)

    @mn.no_stats_update()
    @mn.autocast("cpu")
    def outputs() -> Any:
        yield layer(mn.ones(3, 2)), mn.ones(2, 2) @ mn.ones(2, 2)

    ((_, product),) = outputs()
    assert (product.dtype, layer.num_batches_tracked.item()) == (mn.bfloat16, 0)
    layer(mn.ones(3, 2))
    assert layer.num_batches_tracked.item() == 1


def test_what_cannot_be_decorated_is_an_error() -> None:
    async def endless() -> Any:
        yield 1

    for what, kind in ((endless, "an asynchronous generator"), (int, "a class")):
        with pytest.raises(TypeError, match=f"decorator: {what.__name__} is {kind}; expected a function"):
            mn.no_grad()(what)
