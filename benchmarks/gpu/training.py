"""Training steps of whole networks on a GPU, eager and as one CUDA graph, beside PyTorch's ways.

Each network comes from one definition. In float32 images lie in rows, in TF32 and bfloat16 their channels come last, as
tensor cores want them. Times are the clock's on the wall, the device waited for after every few steps.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import minorm as mn
import minorm.functional as F
from benchmarks import networks
from benchmarks.gpu import device_timing
from benchmarks.gpu.device_timing import microseconds
from minorm import models, optim

SIZE, CLASSES = 32, 10  # of an image's height and width; of what is told apart
TYPES = ("float32", "TF32", "bfloat16")
STEPS = 50  # that are measured


class Network(NamedTuple):
    """A network and a batch; `build` gets minorm or torch."""

    name: str
    build: Callable[[Any], Any]
    batch: int
    quick: bool = False  # it belongs to a quick run
    of_pixels: bool = False  # a class a pixel

    def title(self, kind: str) -> str:
        return f"{self.name}, batch {self.batch}, {kind}"


NETWORKS = [
    Network("ResNet-20", lambda library: models.build("resnet20", 3, SIZE, CLASSES, library.nn), 1024, quick=True),
    Network("ResNet-20", lambda library: models.build("resnet20", 3, SIZE, CLASSES, library.nn), 128, quick=True),
    Network("U-Net", networks.unet, 256, of_pixels=True),
    Network("norms", lambda library: models.build("norms", 3, SIZE, CLASSES, library.nn), 256),
]


def with_minorm(network: Network, kind: str) -> dict[str, float]:
    """Milliseconds of a step in minorm, eager and replayed."""
    with precision(mn, kind):
        mn.manual_seed(0)
        net = network.build(mn).to("cuda")
        images, labels = (mn.tensor(a, device="cuda") for a in batch(network))
        optimizer = optim.SGD(net.parameters(), 0.01, momentum=0.9)
        inside = autocast(mn, kind)
        step = stepping(net, optimizer, F, ordered(images, kind), labels, inside)
        found = {"minorm eager": milliseconds(step)}
        if not device_timing.WARMING:
            graph = mn.cuda.CUDAGraph()
            with mn.cuda.graph(graph):
                step()
            found["minorm graph"] = milliseconds(graph.replay)
    return found


def with_torch(torch: Any, network: Network, kind: str) -> dict[str, float]:
    """Milliseconds of a step in PyTorch, eager and replayed."""
    with precision(torch, kind):
        step = torch_step(torch, network, kind)
        found = {"torch eager": milliseconds(step)}
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        found["torch graph"] = milliseconds(graph.replay)
    return found


def compiled(torch: Any, network: Network, kind: str) -> dict[str, float]:
    """Measure a step under torch.compile(mode="reduce-overhead"), which also replays graphs, in milliseconds."""
    with precision(torch, kind):
        step = torch_step(torch, network, kind, lambda net: torch.compile(net, mode="reduce-overhead"))
        for _ in range(5):
            step()
        return {"torch compile": milliseconds(step)}


def torch_step(torch: Any, network: Network, kind: str, wrap: Callable[[Any], Any] = lambda net: net) -> Any:
    torch.manual_seed(0)
    net = network.build(torch).cuda()
    images, labels = (torch.from_numpy(a).cuda() for a in batch(network))
    if kind != "float32":
        net = net.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
    inside = autocast(torch, kind)
    return stepping(wrap(net), optimizer, torch.nn.functional, ordered(images, kind), labels, inside)


def stepping(
    net: Any,
    optimizer: Any,
    functions: Any,
    images: Any,
    labels: Any,
    inside: Callable[[], Any] = contextlib.nullcontext,
) -> Callable[[], Any]:
    """One training step, of minorm or PyTorch; the forward pass runs in the block that `inside` gives."""

    def step() -> Any:
        optimizer.zero_grad()
        with inside():
            loss = functions.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def batch(network: Network) -> tuple[np.ndarray, np.ndarray]:
    """Random images and classes."""
    rng = np.random.default_rng(0)
    shape = (network.batch, SIZE, SIZE) if network.of_pixels else (network.batch,)
    return rng.standard_normal((network.batch, 3, SIZE, SIZE), np.float32), rng.integers(0, CLASSES, shape)


def ordered(images: Any, kind: str) -> Any:
    """Return minorm's or PyTorch's images in the best order of memory for this type."""
    return images if kind == "float32" else channels_last(images)


def channels_last(x: Any) -> Any:
    """The same numbers with the channels last in memory, of minorm or PyTorch."""
    return x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


def autocast(library: Any, kind: str) -> Callable[[], Any]:
    """Return the context for the forward pass: autocast of minorm or PyTorch for bfloat16, else an empty one."""
    if kind != "bfloat16":
        return contextlib.nullcontext
    return lambda: library.autocast("cuda", dtype=library.bfloat16)


@contextlib.contextmanager
def precision(library: Any, kind: str) -> Iterator[None]:
    """Let float32 products and convolutions of minorm or PyTorch use TF32 if `kind` asks for it."""
    switches = library.backends.cudnn, library.backends.cuda.matmul
    before = [switch.allow_tf32 for switch in switches]
    try:
        for switch in switches:
            switch.allow_tf32 = kind == "TF32"
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            switch.allow_tf32 = value


def milliseconds(step: Callable[[], Any]) -> float:
    return microseconds(step, STEPS, wait=True) / 1000
