"""A whole training step (forward, loss, backward, SGD with momentum) of small CNNs, minorm and PyTorch in turn.

    python -m benchmarks.step [--threads 2] [--seconds 20] [--networks digits vgg] [--compile] [--autocast] [--qat]

Both networks come from one definition (minorm/models/small.py, benchmarks/networks.py) and start from the same weights.
PyTorch runs eagerly with its arrays row-major and channels-last, and with --compile also as torch.compile makes it,
which takes up to a minute a network. Times are medians of steps taken in turn in one process, so the ratios hold where
the times do not. `ratio` is the time of PyTorch's best over ours: above 1 minorm is the faster one. Before it is timed,
the first losses are compared.

With --autocast both compute in bfloat16, and minorm's step in float32 is timed too. With --qat minorm's step that
rounds to int8 on the way (minorm.quantization) is timed too. `by float32` is the time of the step in bfloat16, or of
the one that rounds, over that of minorm's step in float32.

The instruction set is held to AVX2 for both by

    MINORM_MAX_LEVEL=v3 ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2
"""

from __future__ import annotations

import argparse
import contextlib
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import minorm as mn
from benchmarks import networks
from benchmarks.timing import in_turn
from minorm import models
from minorm.quantization import prepare_qat


def _model(name: str, channels: int, size: int) -> Callable[[Any], Any]:
    return lambda library: models.build(name, channels, size, 10, library.nn)


TUNED = {  # name: (how to build it, channels, size, batch); tuned for, and not
    "digits": (_model("digits", 1, 8), 1, 8, 64),
    "lenet": (_model("lenet", 1, 28), 1, 28, 128),
    "resnet20": (_model("resnet20", 3, 32), 3, 32, 64),
    "norms": (_model("norms", 3, 32), 3, 32, 64),
}
OTHERS = {
    "depthwise": (networks.depthwise, 3, 32, 32),
    "vgg": (networks.vgg, 3, 32, 32),
    "unet": (networks.unet, 3, 32, 32),
    "densenet": (networks.densenet, 3, 32, 32),
    "convmixer": (networks.convmixer, 3, 32, 32),
    "discriminator": (networks.discriminator, 3, 32, 64),
    "resnet20-16": (_model("resnet20", 3, 32), 3, 32, 16),
    "resnet20-256": (_model("resnet20", 3, 32), 3, 32, 256),
}
CASES = TUNED | OTHERS
SETTINGS = {"lr": 0.01, "momentum": 0.9}


def step_of(library: Any, model: Any, x: Any, y: Any, autocast: bool = False) -> Callable[[], float]:
    """One training step of a model of that library, which returns its loss; autocast: in bfloat16."""
    loss_function = library.nn.CrossEntropyLoss()
    optimizer = library.optim.SGD(model.parameters(), **SETTINGS)

    def step() -> float:
        with library.autocast("cpu", dtype=library.bfloat16) if autocast else contextlib.nullcontext():
            loss = loss_function(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def steps_of(name: str, compiled: bool, autocast: bool, qat: bool) -> dict[str, Callable[[], float]]:
    """By name: minorm's step, PyTorch's, and minorm's in float32 or the one that rounds; all from the same weights."""
    import torch

    build, channels, size, batch = CASES[name]
    rng = np.random.default_rng(0)
    mn.manual_seed(0)
    ours, other = build(mn), build(mn)
    state = {key: torch.from_numpy(value.numpy().copy()) for key, value in ours.state_dict().items()}
    images = rng.standard_normal((batch, channels, size, size), np.float32)
    labels = rng.integers(0, 10, (batch, *ours(mn.tensor(images)).shape[2:]))
    for model in (ours, other):  # of ours the running statistics have moved
        model.load_state_dict({key: value.numpy() for key, value in state.items()})

    def theirs(channels_last: bool, compiled: bool = False) -> Callable[[], float]:
        model, x = build(torch), torch.from_numpy(images)
        model.load_state_dict(state)
        if channels_last:
            model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
        if compiled:
            model = torch.compile(model)
        return step_of(torch, model, x, torch.from_numpy(labels), autocast)

    x, y = mn.tensor(images), mn.tensor(labels)
    found = {
        "minorm": step_of(mn, ours, x, y, autocast),
        "NCHW": theirs(False),
        "ch.last": theirs(True),
    }
    if compiled:
        found["compiled"] = theirs(False, compiled=True)
    if autocast:
        found["float32"] = step_of(mn, other, x, y)
    if qat:
        floats = [name for name, layer in other.named_modules() if isinstance(layer, mn.nn.ConvTranspose2d)]
        found["qat"] = step_of(mn, prepare_qat(other, x, exclude=floats), x, y)
    return found


def main() -> None:
    formatter = functools.partial(argparse.RawDescriptionHelpFormatter, width=100)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20, help="for each network")
    parser.add_argument("--networks", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--compile", action="store_true", help="torch.compile as well")
    either = parser.add_mutually_exclusive_group()  # a quantization-aware step computes in float32
    either.add_argument("--autocast", action="store_true", help="both in bfloat16, beside minorm's float32")
    either.add_argument("--qat", action="store_true", help="minorm's quantization-aware step as well")
    args = parser.parse_args()
    mn.set_num_threads(args.threads)
    try:
        import torch
    except ImportError:
        raise SystemExit("benchmarks.step compares with PyTorch; install torch") from None
    torch.set_num_threads(args.threads)
    print(f"minorm {mn.__version__}, PyTorch {torch.__version__}, {args.threads} threads, milliseconds a training step")
    peers = ["NCHW", "ch.last"] + ["compiled"] * args.compile
    own = ["float32"] * args.autocast + ["qat"] * args.qat
    titles = ["minorm", *peers, *own, "ratio"] + ["by float32"] * len(own)
    print(f"{'network':14} {'batch':>5} {' '.join(f'{title:>10}' for title in titles)}")
    ratios: dict[str, float] = {}
    for name in args.networks:
        steps = steps_of(name, args.compile, args.autocast, args.qat)
        losses = {title: step() for title, step in steps.items()}
        close = 2e-2 if args.autocast else 1e-4
        assert np.ptp([losses[title] for title in ("minorm", *peers)]) < close, f"{name}: first losses differ: {losses}"
        times = dict(zip(steps, (1000 * t for t in in_turn(list(steps.values()), seconds=args.seconds)), strict=True))
        ratios[name] = min(times[title] for title in peers) / times["minorm"]
        cells = [f"{t:10.3f}" for t in times.values()] + [f"{ratios[name]:10.2f}"]
        if own:
            slow, fast = ("minorm", "float32") if args.autocast else ("qat", "minorm")
            cells.append(f"{times[slow] / times[fast]:10.2f}")
        print(f"{name:14} {CASES[name][3]:5} {' '.join(cells)}", flush=True)
    for title, group in (("tuned for", TUNED), ("not tuned for", OTHERS)):
        if found := [ratio for name, ratio in ratios.items() if name in group]:
            print(f"{title}: geometric mean {np.exp(np.mean(np.log(found))):.2f}, smallest {min(found):.2f}")


if __name__ == "__main__":
    main()
