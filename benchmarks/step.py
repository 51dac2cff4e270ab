"""A whole training step (forward, loss, backward, SGD with momentum) of four CNNs, minorm and PyTorch in turn.

    python -m benchmarks.step [--threads 2] [--seconds 20] [--models digits lenet]

Both networks come from one definition in minorm/models.py and start from the same weights. Times are medians of
steps taken in turn in one process, so the ratios hold where the times do not: a ratio above 1 means that minorm is
the faster one. Before it is timed, the first loss of all three is compared.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

import minorm as mn
from benchmarks.timing import in_turn
from minorm import models, nn, optim

CASES = {  # name: (model, channels, size, batch)
    "digits": ("digits", 1, 8, 64),
    "lenet": ("lenet", 1, 28, 128),
    "resnet20": ("resnet20", 3, 32, 64),
    "norms": ("norms", 3, 32, 64),
}
SETTINGS = {"lr": 0.01, "momentum": 0.9}


def case(name: str) -> tuple[np.ndarray, np.ndarray, Any]:
    """Images, labels and a minorm model."""
    model_name, channels, size, batch = CASES[name]
    rng = np.random.default_rng(0)
    mn.manual_seed(0)
    model = models.build(model_name, channels, size, 10)
    return rng.standard_normal((batch, channels, size, size), np.float32), rng.integers(0, 10, batch), model


def minorm_step(model: Any, images: np.ndarray, labels: np.ndarray) -> Callable[[], float]:
    x, y = mn.tensor(images), mn.tensor(labels)
    loss_function, optimizer = nn.CrossEntropyLoss(), optim.SGD(model.parameters(), **SETTINGS)

    def step() -> float:
        loss = loss_function(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def torch_step(
    name: str, state: dict[str, np.ndarray], images: np.ndarray, labels: np.ndarray, channels_last: bool
) -> Callable[[], float]:
    import torch

    model_name, channels, size, _ = CASES[name]
    model = models.build(model_name, channels, size, 10, torch.nn)
    model.load_state_dict({key: torch.from_numpy(np.array(value)) for key, value in state.items()})
    x, y = torch.from_numpy(images), torch.from_numpy(labels)
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    loss_function, optimizer = torch.nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), **SETTINGS)

    def step() -> float:
        loss = loss_function(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description="Milliseconds a training step, minorm beside PyTorch.")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20, help="for each network")
    parser.add_argument("--models", nargs="+", choices=CASES, default=list(CASES))
    args = parser.parse_args()
    mn.set_num_threads(args.threads)
    try:
        import torch
    except ImportError:
        raise SystemExit("benchmarks.step compares with PyTorch; install torch") from None
    torch.set_num_threads(args.threads)
    print(f"minorm {mn.__version__}, PyTorch {torch.__version__}, {args.threads} threads, milliseconds a training step")
    print(f"{'network':10} {'batch':>5} {'minorm':>9} {'NCHW':>9} {'ch.last':>9} {'NCHW/us':>9} {'ch.last/us':>11}")
    ratios = []
    for name in args.models:
        images, labels, model = case(name)
        state = {key: value.numpy() for key, value in model.state_dict().items()}
        peers = [torch_step(name, state, images, labels, channels_last) for channels_last in (False, True)]
        steps = [minorm_step(model, images, labels), *peers]
        losses = [step() for step in steps]
        assert np.ptp(losses) < 1e-4, f"{name}: the first losses differ: {losses}"
        ours, plain, last = (1000 * t for t in in_turn(steps, seconds=args.seconds))
        ratios.append((plain / ours, last / ours))
        milliseconds = f"{ours:9.3f} {plain:9.3f} {last:9.3f}"
        print(f"{name:10} {len(images):5} {milliseconds} {plain / ours:9.2f} {last / ours:11.2f}")
    mean = np.exp(np.mean(np.log(ratios), axis=0))
    print(f"{'geometric mean':44} {mean[0]:11.2f} {mean[1]:11.2f}")


if __name__ == "__main__":
    main()
