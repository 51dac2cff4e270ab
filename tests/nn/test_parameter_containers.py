"""ParameterList and ParameterDict: what PyTorch's hold and do."""

from __future__ import annotations

from typing import Any

import pytest

import minorm as mn

torch = pytest.importorskip("torch")


def filled(library: Any) -> Any:
    class Net(library.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            ones = library.ones
            self.steps = library.nn.ParameterList([library.nn.Parameter(ones(2)), library.nn.Parameter(ones(3))])
            self.steps.append(library.nn.Parameter(ones(1)))
            self.steps.extend([library.nn.Parameter(ones(2, 2))])
            self.names = library.nn.ParameterDict(
                {"b": library.nn.Parameter(ones(2)), "a": library.nn.Parameter(ones(1))}
            )
            self.names["c"] = library.nn.Parameter(ones(3))
            self.names.update({"d": library.nn.Parameter(ones(4))})

    return Net()


def test_names_order_and_contents() -> None:
    mine, theirs = filled(mn), filled(torch)
    assert [(name, tuple(p.shape)) for name, p in mine.named_parameters()] == [
        (name, tuple(p.shape)) for name, p in theirs.named_parameters()
    ]
    assert list(mine.state_dict()) == list(theirs.state_dict())
    assert len(mine.steps) == len(theirs.steps)
    assert list(mine.names.keys()) == list(theirs.names.keys())
    assert [tuple(p.shape) for p in mine.steps[1:]] == [tuple(p.shape) for p in theirs.steps[1:]]
    assert mine.steps[-1].shape == tuple(theirs.steps[-1].shape)
    assert ("b" in mine.names) == ("b" in theirs.names)
    assert mine.names.pop("b").shape == tuple(theirs.names.pop("b").shape)
    del mine.names["c"], theirs.names["c"]
    mine.steps[0], theirs.steps[0] = mn.nn.Parameter(mn.ones(7)), torch.nn.Parameter(torch.ones(7))
    assert [name for name, _ in mine.named_parameters()] == [name for name, _ in theirs.named_parameters()]
    assert [tuple(p.shape) for p in mine.parameters()] == [tuple(p.shape) for p in theirs.parameters()]


def test_weights_move_both_ways() -> None:
    mine, theirs = filled(mn), filled(torch)
    for i, parameter in enumerate(theirs.parameters()):
        parameter.data.fill_(float(i))
    assert "matched" in str(mine.load_state_dict(theirs.state_dict()))
    assert [p.array.ravel()[0] for p in mine.parameters()] == list(range(8))
