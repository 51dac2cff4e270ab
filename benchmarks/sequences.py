"""Inference of text models, recurrent networks and a detector, loaded from ONNX: minorm and onnxruntime in turn.

    python -m benchmarks.sequences [--seconds 5] [--networks encoder voice]

PyTorch writes the networks below with random weights. Both run on one thread; their results are compared before they
are timed. Times are medians of runs taken in turn in one process, in milliseconds; `ratio` is minorm's time by
onnxruntime's. `passes` is how many a run by plan takes.

MINORM_MAX_LEVEL=v3 holds minorm to AVX2. onnxruntime has no such switch: it takes what the processor has.
"""

from __future__ import annotations

import argparse
import io
import itertools
import warnings
from typing import Any

import numpy as np

import minorm as mn
import minorm.onnx
from benchmarks.timing import in_turn

CLOSE = 1e-4  # of the largest output: how far the results may be from onnxruntime's
Export = tuple[Any, tuple[Any, ...], list[str]]  # a network, its arguments, and their names


def encoder(torch: Any) -> Export:
    """Two layers of a BERT of 384 features and 12 heads behind its embeddings, as MiniLM; 50 of 64 tokens are words."""
    nn = torch.nn

    class Layer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, features: int, heads: int) -> None:
            super().__init__()
            self.heads = heads
            self.query, self.key, self.value, self.joined = (nn.Linear(features, features) for _ in range(4))
            self.wide, self.narrow = nn.Linear(features, 4 * features), nn.Linear(4 * features, features)
            self.first, self.second = nn.LayerNorm(features), nn.LayerNorm(features)

        def forward(self, x: Any, mask: Any) -> Any:
            q, k, v = (
                layer(x).view(*x.shape[:2], self.heads, -1).permute(0, 2, 1, 3)
                for layer in (self.query, self.key, self.value)
            )
            scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + mask
            seen = (torch.softmax(scores, -1) @ v).permute(0, 2, 1, 3).reshape(x.shape)
            x = self.first(self.joined(seen) + x)
            return self.second(self.narrow(nn.functional.gelu(self.wide(x))) + x)

    class Encoder(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places, self.norm = nn.Embedding(2000, 384), nn.Embedding(512, 384), nn.LayerNorm(384)
            self.layers = nn.ModuleList(Layer(384, 12) for _ in range(2))

        def forward(self, ids: Any, mask: Any) -> Any:
            x = self.norm(self.words(ids) + self.places(torch.arange(ids.shape[1])[None]))
            hidden = (1.0 - mask[:, None, None, :].to(x.dtype)) * -1e9
            for layer in self.layers:
                x = layer(x, hidden)
            return x

    ids = torch.arange(64)[None] * 31 % 2000
    return Encoder(), (ids, (torch.arange(64) < 50).long()[None]), ["ids", "mask"]


def voice(torch: Any) -> Export:
    """A voice detector: convolutions over 96 ms of sound, two LSTMs whose states are inputs, one probability."""
    nn = torch.nn

    class Detector(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            layers = [nn.Conv1d(1, 64, 256, 64, bias=False), nn.ReLU()]
            for _ in range(2):
                layers += [nn.Conv1d(64, 64, 3, 2, 1), nn.ReLU()]
            self.features, self.rnn = nn.Sequential(*layers), nn.LSTM(64, 64, 2, batch_first=True)
            self.out = nn.Conv1d(64, 1, 1)

        def forward(self, x: Any, h: Any, c: Any) -> Any:
            y, states = self.rnn(self.features(x[:, None]).transpose(1, 2), (h, c))
            return torch.sigmoid(self.out(torch.relu(y.transpose(1, 2)))).mean(2), *states

    return Detector(), (torch.randn(1, 1536), *torch.zeros(2, 2, 1, 64)), ["x", "h", "c"]


def keywords(torch: Any) -> Export:
    """Two bidirectional GRUs over 50 frames of 40 features."""
    nn = torch.nn

    class Spotter(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.out = nn.GRU(40, 64, 2, bidirectional=True), nn.Linear(128, 10)

        def forward(self, x: Any) -> Any:
            return torch.log_softmax(self.out(self.rnn(x)[0]), -1)

    return Spotter(), (torch.randn(50, 1, 40),), ["x"]


def detector(torch: Any) -> Export:
    """Three resolutions, joined from the coarsest to the finest by Resize, and boxes and classes at each."""
    nn, interpolate = torch.nn, torch.nn.functional.interpolate

    def block(channels: int, width: int, stride: int = 1) -> Any:
        return nn.Sequential(nn.Conv2d(channels, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())

    class Pyramid(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.stem = block(3, 16, 2)
            sizes = (16, 32, 64, 96)
            self.down = nn.ModuleList(nn.Sequential(block(a, b, 2), block(b, b)) for a, b in itertools.pairwise(sizes))
            self.across = nn.ModuleList(nn.Conv2d(width, 32, 1) for width in sizes[1:])
            self.smooth = nn.ModuleList(block(32, 32) for _ in sizes[1:])
            self.classes, self.boxes = nn.Conv2d(32, 24, 3, padding=1), nn.Conv2d(32, 16, 3, padding=1)

        def forward(self, x: Any) -> Any:
            x, found = self.stem(x), []
            for layer, across in zip(self.down, self.across, strict=True):
                x = layer(x)
                found.append(across(x))
            fine, middle, coarse = found
            middle = middle + interpolate(coarse, size=middle.shape[-2:], mode="nearest")
            fine = fine + interpolate(middle, scale_factor=2.0, mode="bilinear", align_corners=False)
            levels = [torch.max(f(y), 0.1 * y) for f, y in zip(self.smooth, (fine, middle, coarse), strict=True)]
            classes, boxes = (
                torch.cat([f(y).permute(0, 2, 3, 1).reshape(len(y), -1, n) for y in levels], 1)
                for f, n in ((self.classes, 6), (self.boxes, 4))
            )
            middle, size = boxes[..., :2] * 0.1, torch.exp(boxes[..., 2:] * 0.2) / 2
            return torch.softmax(classes, -1), torch.cat([middle - size, middle + size], -1)

    return Pyramid(), (torch.randn(1, 3, 320, 320),), ["x"]


NETWORKS = {f.__name__: f for f in (encoder, voice, keywords, detector)}


def measure(torch: Any, name: str, seconds: float) -> str:
    """A line of the table."""
    import onnxruntime

    torch.manual_seed(0)
    network, arguments, names = NETWORKS[name](torch)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(network.eval(), arguments, file, dynamo=False, opset_version=17, input_names=names)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
    feed = {name: argument.numpy() for name, argument in zip(names, arguments, strict=True)}
    model = minorm.onnx.load(file.getvalue()).eval()
    given = [mn.from_numpy(array.copy()) for array in feed.values()]
    for y, wanted in zip(results(model(*given)), session.run(None, feed), strict=True):
        error = np.abs(y.numpy() - wanted).max() / np.abs(wanted).max()
        assert error < CLOSE, f"{name}: the results differ by {error:.1e} of the largest"
    ours, theirs = in_turn([lambda: model(*given), lambda: session.run(None, feed)], seconds)
    passes = repr(model._plans).rpartition(": ")[2].removesuffix(" passes")
    return f"{name:10} {ours * 1e3:9.3f} {theirs * 1e3:11.3f} {ours / theirs:7.2f} {passes:>7}"


def results(given: Any) -> tuple[Any, ...]:
    return given if isinstance(given, tuple) else (given,)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5, help="for each network")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    args = parser.parse_args()
    try:
        import onnxruntime
        import torch
    except ImportError:
        raise SystemExit("benchmarks.sequences loads what PyTorch exports; install torch and onnxruntime") from None
    mn.set_num_threads(1)
    torch.set_num_threads(1)
    print(f"minorm {mn.__version__}, onnxruntime {onnxruntime.__version__}, one thread, milliseconds a run")
    print(f"{'network':10} {'minorm':>9} {'onnxruntime':>11} {'ratio':>7} {'passes':>7}")
    with mn.no_grad():
        for name in args.networks:
            print(measure(torch, name, args.seconds), flush=True)


if __name__ == "__main__":
    main()
