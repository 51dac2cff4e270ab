"""Loops as PyTorch's exporters write them: scripted ones as Loop, `scan` and `while_loop` as Scan and Loop.

Values, gradients, and what one step of SGD makes of the loss, against PyTorch in float64.
"""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import pytest

import minorm as mn

onnx = pytest.importorskip("onnx")
torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402  after importorskip

import minorm.onnx as mo  # noqa: E402

# Scripted: the classes below are compiled by torch.jit.script, which wants their annotations.


class Cell(nn.Module):
    """A recurrence over as many steps as the input has."""

    def __init__(self) -> None:
        super().__init__()
        self.x, self.h = nn.Linear(3, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(x.size(1), 4, dtype=x.dtype)
        for t in range(x.size(0)):
            h = torch.tanh(self.x(x[t]) + self.h(h))
        return h


class Backwards(nn.Module):
    """One that keeps what every step made."""

    def __init__(self) -> None:
        super().__init__()
        self.x, self.h = nn.Linear(3, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = torch.zeros(x.size(1), 4, dtype=x.dtype)
        kept = []
        for t in range(x.size(0)):
            h = torch.sigmoid(self.x(x[x.size(0) - 1 - t]) + self.h(h))
            kept.append(h)
        return torch.stack(kept), h


class Settling(nn.Module):
    """Until the data say that it is enough."""

    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = 0
        while bool((x * x).sum() > 0.25) and n < 50:
            x = 0.5 * torch.tanh(self.step(x)) + 0.125 * x
            n += 1
        return x


class Nested(nn.Module):
    """A loop in a loop, with a BatchNorm that trains."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2)

    def forward(self, x: torch.Tensor, rounds: int) -> torch.Tensor:
        y = torch.zeros_like(x)
        for i in range(rounds):
            for _ in range(i + 1):
                y = torch.relu(self.norm(self.conv(x + y))) * 0.5
            y = y + x / (i + 1)
        return y


class Choosing(nn.Module):
    """Another branch in each turn."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.scale = nn.Linear(3, 3), nn.Linear(3, 3), nn.Parameter(torch.randn(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(x.size(0)):
            if bool(x.sum() > 0):
                x = torch.tanh(self.down(x) - 1.0) * self.scale
            else:
                x = self.up(x) + 1.0
        return x


class Decoding(nn.Module):
    """A word at a time, each chosen by what came before."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.cell, self.head = nn.Embedding(7, 4), nn.Linear(9, 5), nn.Linear(5, 7)

    def forward(self, word: torch.Tensor, length: int) -> torch.Tensor:
        h = torch.zeros(word.size(0), 5, dtype=self.head.weight.dtype)
        said = []
        for _ in range(length):
            h = torch.tanh(self.cell(torch.cat([self.words(word), h], 1)))
            y = self.head(h)
            said.append(y)
            word = y.argmax(-1)
        return torch.stack(said, 1)


SCRIPTED: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "cell": (Cell, (torch.randn(5, 2, 3),)),
    "backwards": (Backwards, (torch.randn(5, 2, 3),)),
    "settling": (Settling, (torch.randn(2, 3) + 2,)),
    "nested": (Nested, (torch.randn(2, 2, 4, 4), 3)),
    "choosing": (Choosing, (torch.randn(4, 3),)),
    "decoding": (Decoding, (torch.tensor([1, 3]), 4)),
}


# The newer exporter


class Scanning(nn.Module):
    """torch.scan with a state that is learned, forwards or from the end."""

    def __init__(self, reverse: bool = False) -> None:
        super().__init__()
        self.x, self.h, self.begin, self.reverse = (
            nn.Linear(3, 4),
            nn.Linear(4, 4),
            nn.Parameter(torch.randn(4)),
            reverse,
        )

    def forward(self, x: Any) -> Any:
        from torch._higher_order_ops import scan

        def step(h: Any, element: Any) -> Any:
            h = torch.tanh(self.x(element) + self.h(h))
            return h, h * 2

        h, ys = scan(step, self.begin.expand(x.shape[1], 4).clone(), x, dim=0, reverse=self.reverse)
        return ys, h


class TwoStates(nn.Module):
    """Two states, two sequences, along axis 1."""

    def __init__(self) -> None:
        super().__init__()
        self.gates, self.norm = nn.Linear(6, 8), nn.LayerNorm(4)

    def forward(self, x: Any) -> Any:
        from torch._higher_order_ops import scan

        def step(states: Any, elements: Any) -> Any:
            h, memory = states
            i, o = self.gates(torch.cat([elements[0] + elements[1], h[:, :3]], -1)).chunk(2, -1)
            memory = torch.sigmoid(i) * memory + torch.tanh(o)
            return (self.norm(memory), memory + 0), memory * 0.5

        zeros = x.new_zeros(x.shape[0], 4)
        (_, memory), ys = scan(step, (zeros, zeros + 1), (x, x.flip(1)), dim=1)
        return ys, memory


class Waiting(nn.Module):
    """torch.while_loop, whose gradient in PyTorch itself is that of `plain`."""

    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        from torch._higher_order_ops import while_loop

        def goes_on(i: Any, y: Any) -> Any:
            return (i < 7) & ((y * y).sum() > 0.0625)

        def turn(i: Any, y: Any) -> Any:
            return i + 1, 0.75 * torch.tanh(self.step(y))

        return while_loop(goes_on, turn, (torch.tensor(0), x))[1]

    def plain(self, x: Any) -> Any:
        i = 0
        while i < 7 and (x * x).sum() > 0.0625:
            i, x = i + 1, 0.75 * torch.tanh(self.step(x))
        return x


NEWER: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "scanning": (Scanning, (torch.randn(5, 2, 3),)),
    "from the end": (lambda: Scanning(True), (torch.randn(5, 2, 3),)),
    "two states": (TwoStates, (torch.randn(2, 5, 3),)),
    "waiting": (Waiting, (torch.randn(2, 3),)),
}


def made(network: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """The network with weights of which no two are equal, in float64."""
    torch.manual_seed(1)
    model = network().double()
    with torch.no_grad():
        for p in model.parameters():
            p += 0.1 * torch.randn_like(p)
    return model, tuple(a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args)


def scripted(model: Any, args: tuple[Any, ...]) -> Any:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            torch.jit.script(model), args, file, dynamo=False, do_constant_folding=False, opset_version=17,
            training=torch.onnx.TrainingMode.TRAINING,
        )  # fmt: skip
    return onnx.load_from_string(file.getvalue())


def squares(results: Any) -> Any:
    results = results if isinstance(results, tuple) else (results,)
    return sum((y * y).mean() for y in results)


def trains_alike(model: Any, loaded: Any, args: tuple[Any, ...], bound: float) -> None:
    theirs, ours = torch.optim.SGD(model.parameters(), lr=0.1), mn.optim.SGD(loaded.parameters(), lr=0.1)
    forward = getattr(model, "plain", model)
    for _ in range(2):  # the second loss is that of what the first step moved
        want, got = forward(*args), loaded(*[mn.Tensor(np.asarray(a)) for a in args])
        for y, z in zip(*(r if isinstance(r, tuple) else (r,) for r in (want, got)), strict=True):
            np.testing.assert_allclose(z.array, y.detach().numpy(), rtol=bound, atol=bound)
        squares(want).backward()
        squares(got).backward()
        gradients = {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}
        parameters = dict(loaded.named_parameters())
        for name, p in parameters.items():
            if name in gradients and gradients[name].shape == p.shape:
                np.testing.assert_allclose(p.grad.array, gradients[name], rtol=bound, atol=bound, err_msg=name)
        assert sum(p.array.size for p in parameters.values()) == sum(p.numel() for p in model.parameters())
        for optimizer in (theirs, ours):
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize("name", SCRIPTED)
def test_scripted_loops_run_and_train_as_in_pytorch(name: str) -> None:
    model, args = made(*SCRIPTED[name])
    loaded = mo.load(scripted(model, args))
    assert any(step.label.startswith("Loop") for step in loaded._steps)
    assert {n for n, _ in loaded.named_parameters()} == {n for n, _ in model.named_parameters()}
    trains_alike(model, loaded, args, 1e-12)
    if name == "nested":
        buffers = dict(loaded.named_buffers())
        np.testing.assert_allclose(buffers["norm.running_mean"].array, model.norm.running_mean, rtol=1e-12)


def test_a_loop_runs_for_as_long_as_its_data_say() -> None:
    model, args = made(*SCRIPTED["decoding"])
    loaded = mo.load(scripted(model, args))
    for length in (1, 9):
        want = model(args[0], length).detach().numpy()
        np.testing.assert_allclose(loaded(mn.tensor([1, 3]), mn.tensor(length)).array, want, rtol=1e-12)


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "from the end" else pytest.mark.slow) for n in NEWER]
)
def test_scans_run_and_train_as_in_pytorch(name: str, folded: bool) -> None:
    pytest.importorskip("onnxscript")
    model, args = made(*NEWER[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        proto = torch.onnx.export(model.eval(), args, dynamo=True, optimize=folded, verbose=False).model_proto
    assert any(node.op_type in ("Scan", "Loop") for node in proto.graph.node)
    trains_alike(model, mo.load(proto), args, 1e-6 if name == "two states" else 1e-12)  # its eps is a float32
