"""Batches copied ahead: which they are, in what order streams wait, and what the host waits for."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import minorm as mn


class Pair(NamedTuple):
    x: Any
    name: str


def test_the_batches_of_the_loader_come_in_order(cuda: Any) -> None:
    data = mn.data.ArrayDataset(np.arange(14, dtype=np.float32).reshape(7, 2), np.arange(7))
    loader = mn.data.DataLoader(data, batch_size=3, shuffle=True, seed=1)
    expected = [[part.tolist() for part in batch] for batch in loader]
    loader = mn.data.DataLoader(data, batch_size=3, shuffle=True, seed=1)
    cuda.transfers.clear()
    found = list(mn.data.prefetch(loader, "cuda:1"))
    assert set(cuda.transfers.places) == {(1, 1)}, "whatever device is the current one"
    assert [[part.cpu().tolist() for part in batch] for batch in found] == expected
    assert {str(part.device) for batch in found for part in batch} == {"cuda:1"}
    assert list(mn.data.prefetch([])) == []


def test_on_the_cpu_batches_come_as_they_are_asked_for() -> None:
    asked: list[int] = []
    batches = mn.data.prefetch(({"x": mn.ones(2), "n": asked.append(i)} for i in range(3)), "cpu")
    assert str(next(batches)["x"].device) == "cpu"
    assert asked == [0]
    for streams in (mn.cuda.Stream, mn.cuda.current_stream, mn.cuda.default_stream):
        with pytest.raises(ValueError, match=f"{streams.__name__}: device is 'cpu'; expected a GPU"):
            streams("cpu")


def test_nests_keep_their_form(cuda: Any) -> None:
    x = mn.ones(2)
    (batch,) = mn.data.prefetch([{"pair": Pair(x, "a"), "list": [x, (x, 3)]}])
    assert isinstance(batch["pair"], Pair)
    assert batch["pair"].name == "a"
    assert batch["list"][1][1] == 3
    assert {str(t.device) for t in (batch["pair"].x, batch["list"][0], batch["list"][1][0])} == {"cuda:0"}


def test_a_copy_waits_for_the_steps_before_and_the_step_for_its_copy(
    cuda: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[Any] = []
    asarray = cuda.asarray

    def copied(array: Any, *args: Any) -> Any:
        log.append(("copy", int(array[0]), mn.cuda.current_stream().cuda_stream))
        return asarray(array, *args)

    class Waits(list[Any]):
        def append(self, pair: Any) -> None:
            log.append(("wait", *pair))

    cuda.transfers.clear()
    monkeypatch.setattr(cuda.transfers, "waits", Waits())
    monkeypatch.setattr(cuda, "asarray", copied)
    log.extend(
        ("step", int(batch.array.memory[0])) for batch in mn.data.prefetch([mn.full((2,), float(i)) for i in range(3)])
    )
    assert cuda.transfers.to_host == 0
    side = log[1][2]
    assert side != 0
    before, after = ("wait", side, 0), ("wait", 0, side)  # (who waits, for whom)
    assert log == [
        before, ("copy", 0, side),
        before, ("copy", 1, side), after, ("step", 0),
        before, ("copy", 2, side), after, ("step", 1),
        after, ("step", 2),
    ]  # fmt: skip
