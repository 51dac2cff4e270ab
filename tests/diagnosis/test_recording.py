"""A recording sees each step of a run once, under its layer's name, with the steps before it, and holds no memory."""

from __future__ import annotations

import gc
import io
import weakref
from typing import Any

import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn
from minorm.diagnosis.recording import Step, watched
from minorm.graph import trace


def steps(model: nn.Module, x: Any) -> list[tuple[str, str, str, str | None]]:
    """kind, name, which, and the name of the step before."""
    found: list[tuple[str, str, str, str | None]] = []

    def see(step: Step) -> None:
        found.append((step.kind, step.name, step.what, None if step.before is None else step.before.name))

    with mn.no_grad(), watched(model, see):
        model(x)
    return found


def small() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2)
    ).eval()


def test_modules() -> None:
    assert steps(small(), mn.zeros(2, 3, 8, 8)) == [
        ("affine", "0", "", None),
        ("norm", "1", "batch", "0"),
        ("activation", "2", "relu", "1"),
        ("passing", "3", "", "2"),
        ("affine", "5", "", None),
    ]


def test_the_nodes_of_a_loaded_graph_have_the_names_of_the_modules() -> None:
    pytest.importorskip("onnx")
    import minorm.onnx

    file = io.BytesIO()
    minorm.onnx.export(small(), mn.zeros(2, 3, 8, 8), file)
    graph = minorm.onnx.load(file.getvalue())
    assert steps(graph, mn.zeros(2, 3, 8, 8)) == steps(small(), mn.zeros(2, 3, 8, 8))
    inside = steps(nn.Sequential(graph, nn.Tanh()), mn.zeros(2, 3, 8, 8))
    assert [kind for kind, *_ in inside] == ["affine", "norm", "activation", "passing", "affine", "activation"]
    assert inside[1][1] == "0.1"


def test_functions_have_the_name_of_their_tensors_or_of_the_module_that_calls_them() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(mn.ones(4))
            self.inner = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            x = F.relu(F.layer_norm(self.inner(x), 4))
            return F.tanh(F.relu(F.rms_norm(x, 4, self.scale)))

    model = nn.Sequential(Block())
    assert steps(model, mn.zeros(2, 4)) == [
        ("affine", "0.inner", "", None),
        ("norm", "0", "layer", "0.inner"),
        ("activation", "0 (2)", "relu", "0"),
        ("norm", "0", "rms", "0 (2)"),
        ("activation", "0 (3)", "relu", "0"),
        ("activation", "0 (4)", "tanh", "0 (3)"),
    ]


def test_a_step_can_be_repeated_unseen() -> None:
    seen: list[str] = []
    again: list[Any] = []

    def see(step: Step) -> None:
        seen.append(step.name)
        if step.kind in ("norm", "passing"):
            again.append((step.y, step.again(step.x)))

    with mn.no_grad(), watched(small(), see):
        small()  # no run: nothing to see
    model = small()
    with mn.no_grad(), watched(model, see):
        model(mn.randn(2, 3, 8, 8))
    assert seen == ["0", "1", "2", "3", "5"]
    assert len(again) == 2
    assert all((y.array == z.array).all() for y, z in again)


def test_no_more_is_held_than_the_last_few_steps() -> None:
    blocks = [layer for _ in range(12) for layer in (nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU())]
    made: list[weakref.ref[Any]] = []
    alive: list[int] = []

    def see(step: Step) -> None:
        made.append(weakref.ref(step.y))
        gc.collect()
        alive.append(sum(ref() is not None for ref in made))

    model = nn.Sequential(*blocks).eval()
    gc.collect()
    gc.freeze()  # what other tests have made is not looked at 36 times
    with mn.no_grad(), watched(model, see):
        model(mn.randn(4, 8))
    assert len(made) == 36
    assert max(alive) <= 8


def test_nothing_is_left_behind_after_an_error() -> None:
    model = small()
    model[4].register_forward_hook(lambda *_: 1 / 0)
    hooks = {name: str(vars(module).get("_hooks")) for name, module in model.named_modules()}
    with pytest.raises(ZeroDivisionError), watched(model, lambda _: None):
        model(mn.zeros(2, 3, 8, 8))
    assert {name: str(vars(module).get("_hooks")) for name, module in model.named_modules()} == hooks
    assert trace.state.calls is None
