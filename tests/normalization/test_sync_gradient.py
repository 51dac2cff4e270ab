"""Second gradients over ranks: those of the whole batch in PyTorch, in float64; third ones by finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm.autograd import grad
from minorm.distributed import simulate
from tests.distributed.engines import on_processes
from tests.normalization.test_sync_normalize import CUTS, channels_last, parts

Arrays = dict[str, Any]
SHARED = ("s", "b", "ws", "wb")


def numbers(images: int, channels: int, seed: int = 0) -> Arrays:
    """x and dy; weights w, ws and wb of the first gradients dx, ds and db."""
    rng, shape = np.random.default_rng(seed), (images, channels, 2, 3)
    wide = {name: rng.standard_normal(shape) for name in ("x", "dy", "w")}
    return {**wide, **{name: rng.standard_normal(channels) for name in SHARED}}


def second(library: Any, normalize: Any, given: Arrays) -> tuple[Any, Any, Any]:
    """d(<w, dx> + <ws, ds> + <wb, db>) for x, dy and s, in either library."""
    x, dy, s, b = (library.tensor(given[name], requires_grad=True) for name in ("x", "dy", "s", "b"))
    first = library.autograd.grad(normalize(x, s, b), (x, s, b), dy, create_graph=True)
    weights = [library.tensor(given[name]) for name in ("w", "ws", "wb")]
    ends, v = zip(*[(g, w) for g, w in zip(first, weights, strict=True) if g.requires_grad], strict=True)
    return library.autograd.grad(ends, (x, dy, s), v, allow_unused=True)


def of_pytorch(given: Arrays) -> tuple[Any, Any, Any]:
    torch = pytest.importorskip("torch")
    normalize = torch.nn.functional.batch_norm
    return tuple([g.numpy() for g in second(torch, lambda x, s, b: normalize(x, None, None, s, b, True), given)])


def of_rank(group: Any, given: Arrays) -> tuple[Any, Any, Any]:
    def normalize(x: Any, s: Any, b: Any) -> Any:
        return F.batch_norm(x, None, None, s, b, True, process_group=group)

    return tuple([g.numpy() for g in second(mn, normalize, given)])


def cut(given: Arrays, counts: Any) -> list[Arrays]:
    pieces = {name: parts(given[name], counts) for name in ("x", "dy", "w")}
    shared = {name: given[name] for name in SHARED}
    return [{**shared, **{name: piece[i] for name, piece in pieces.items()}} for i in range(len(counts))]


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("last", [False, True], ids=["row-major", "channels last"])
@pytest.mark.parametrize("name", ["uneven", "empty in the middle", "one rank has all"])
def test_as_with_the_whole_batch(name: str, last: bool, processes: int) -> None:
    counts = CUTS[name]
    given = numbers(sum(counts), 3)
    mine = cut(given, counts)
    if last:
        mine = [{k: np.moveaxis(channels_last(a), -1, 1) if a.ndim > 1 else a for k, a in one.items()} for one in mine]
    found = on_processes(processes, len(counts), lambda group: of_rank(group, mine[group.rank]))
    of_x, of_dy, of_s = of_pytorch(given)
    np.testing.assert_allclose(np.concatenate([rank[0] for rank in found]), of_x, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(np.concatenate([rank[1] for rank in found]), of_dy, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(sum(rank[2] for rank in found), of_s, rtol=1e-9, atol=1e-9)


def test_one_value_a_channel_on_all_ranks_together_but_two_is_right() -> None:
    given = numbers(2, 2)
    given = {name: a[:, :, :1, :1] if a.ndim > 1 else a for name, a in given.items()}
    mine = cut(given, (1, 1))
    found = simulate(2, lambda group: of_rank(group, mine[group.rank]))
    for i, expected in enumerate(of_pytorch(given)[:2]):
        np.testing.assert_allclose(np.concatenate([rank[i] for rank in found]), expected, rtol=1e-7, atol=1e-7)


def test_third_gradients() -> None:
    given = numbers(3, 1)
    direction = np.random.default_rng(1).standard_normal(given["x"].shape)

    def slope(group: Any, step: float, more: bool) -> Any:
        """d|dx|^2/dx, times w, along x + step * direction; or its gradient, times the direction."""
        counts = (1, 2)
        x, dy, w, u = (parts(a, counts)[group.rank] for a in (given["x"], given["dy"], given["w"], direction))
        x = mn.tensor(x + step * u, requires_grad=True)
        y = F.batch_norm(x, None, None, None, None, True, process_group=group)
        (dx,) = grad(y, x, mn.tensor(dy), create_graph=True)
        (of_x,) = grad(dx, x, dx, create_graph=True)
        end = (of_x * mn.tensor(w)).sum()
        return (grad(end, x)[0].numpy() * u).sum() if more else end.item()

    found, above, below = (
        sum(simulate(2, lambda group, step=step, more=more: slope(group, step, more)))
        for step, more in ((0.0, True), (1e-5, False), (-1e-5, False))
    )
    np.testing.assert_allclose(found, (above - below) / 2e-5, rtol=1e-6)
