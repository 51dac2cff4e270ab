"""More small networks in PyTorch, made of what is hard to tell from a number that a program wrote down.

Learned tokens, registers, thresholds and temperatures; and tables of sines, filter banks, windows, masks and slopes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune

from tests.onnx.families import Net, weight

NETWORKS: dict[str, Callable[[], tuple[Any, Any]]] = {}


def network(make: Callable[[], tuple[Any, Any]]) -> Callable[[], tuple[Any, Any]]:
    NETWORKS[make.__name__] = make
    return make


def image(channels: int = 3, size: int = 8) -> Any:
    return torch.randn(2, channels, size, size)


# Tokens and positions


@network
def registers() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        x = m.patches(x).flatten(2).transpose(1, 2)
        first = torch.cat([m.cls_token, m.register_tokens], 1).expand(x.shape[0], -1, -1)
        return m.head(torch.cat([first, x + m.pos_embed], 1)[:, 0])

    parts = {"cls_token": weight(1, 1, 8), "register_tokens": weight(1, 4, 8), "pos_embed": weight(1, 4, 8)}
    return Net(run, patches=nn.Conv2d(3, 8, 4, 4), head=nn.Linear(8, 3), **parts), image()


@network
def clip_vision() -> tuple[Any, Any]:
    class Embeddings(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.class_embedding = nn.Parameter(torch.randn(8))
            self.patch_embedding = nn.Conv2d(3, 8, 4, 4, bias=False)
            self.position_embedding = nn.Embedding(5, 8)
            self.register_buffer("position_ids", torch.arange(5).expand(1, -1), persistent=False)

        def forward(self, x: Any) -> Any:
            x = self.patch_embedding(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.class_embedding.expand(x.shape[0], 1, -1), x], 1)
            return x + self.position_embedding(self.position_ids)

    return Net(lambda m, x: m.norm(m.embeddings(x)), embeddings=Embeddings(), norm=nn.LayerNorm(8)), image()


@network
def resized_positions() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        x = m.patches(x).flatten(2).transpose(1, 2)
        grid = m.positions[:, 1:].reshape(1, 3, 3, 8).permute(0, 3, 1, 2)
        grid = F.interpolate(grid, size=(2, 2), mode="bilinear").permute(0, 2, 3, 1).reshape(1, 4, 8)
        x = torch.cat([m.cls_token.expand(x.shape[0], -1, -1), x], 1)
        return m.head(x + torch.cat([m.positions[:, :1], grid], 1))

    parts = {"cls_token": weight(1, 1, 8), "positions": weight(1, 10, 8)}
    return Net(run, patches=nn.Conv2d(3, 8, 4, 4), head=nn.Linear(8, 3), **parts), image()


@network
def detection_tokens() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        x = m.patches(x).flatten(2).transpose(1, 2)
        b = x.shape[0]
        x = torch.cat([m.cls_token.expand(b, -1, -1), x, m.detection_tokens.expand(b, -1, -1)], 1)
        return m.head(x + m.positions + m.middle[0])

    parts = {"cls_token": weight(1, 1, 8), "detection_tokens": weight(1, 3, 8), "positions": weight(1, 8, 8)}
    return Net(run, patches=nn.Conv2d(3, 8, 4, 4), head=nn.Linear(8, 3), middle=weight(2, 1, 8, 8), **parts), image()


@network
def masked_tokens() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        return m.head(torch.where((x.sum(-1, keepdim=True) > 0), x, m.mask_token))

    return Net(run, mask_token=weight(1, 1, 8), head=nn.Linear(8, 3)), torch.randn(2, 5, 8)


@network
def padded_words() -> tuple[Any, Any]:
    return Net(lambda m, i: m.head(m.words(i)), words=nn.Embedding(9, 6, padding_idx=0), head=nn.Linear(6, 2)), (
        torch.randint(0, 9, (2, 5))
    )


@network
def prototypes() -> tuple[Any, Any]:  # distances from learned centres
    def run(m: Any, x: Any) -> Any:
        distance = (m.body(x).unsqueeze(1) - m.centres.unsqueeze(0)).square().sum(-1)
        return (-distance * m.sharpness).softmax(-1)

    return Net(run, body=nn.Linear(5, 4), centres=weight(3, 4), sharpness=weight(3)), torch.randn(2, 5)


# Norms, scales and thresholds


class FilterResponse(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.eps = 1e-5
        self.weight, self.bias, self.tau = (nn.Parameter(torch.randn(channels)) for _ in range(3))

    def forward(self, x: Any) -> Any:
        x = x * x.square().mean((2, 3), keepdim=True).add(self.eps).rsqrt()
        shape = (1, -1, 1, 1)
        x = x * self.weight.view(shape) + self.bias.view(shape)
        return torch.maximum(x, self.tau.reshape(shape))


@network
def filter_response() -> tuple[Any, Any]:
    return nn.Sequential(nn.Conv2d(3, 4, 3), FilterResponse(4), nn.Conv2d(4, 2, 1)), image()


@network
def layer_scale() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        return x + m.gamma_2 * m.two(F.gelu(x + m.gamma_1 * m.one(x)))

    parts = {"gamma_1": nn.Parameter(1e-5 * torch.rand(6)), "gamma_2": nn.Parameter(1e-5 * torch.rand(6))}
    return Net(run, one=nn.Linear(6, 6), two=nn.Linear(6, 6), **parts), torch.randn(2, 4, 6)


@network
def temperatures() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        q, k, v = m.qkv(x).reshape(2, 4, 3, 2, 4).permute(2, 0, 3, 1, 4)
        attention = (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)) * m.temperature
        return m.logit_scale.exp() * m.out((attention.softmax(-1) @ v).transpose(1, 2).reshape(2, 4, 8))

    parts = {"temperature": weight(2, 1, 1), "logit_scale": nn.Parameter(torch.tensor(1.3))}
    return Net(run, qkv=nn.Linear(8, 24), out=nn.Linear(8, 3), **parts), torch.randn(2, 4, 8)


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.2))

    def forward(self, x: Any) -> Any:
        return x * self.scale


@network
def scales() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        return torch.cat([m.a(m.conv(x)).exp(), m.b(m.conv(x))], 1)

    return Net(run, conv=nn.Conv2d(3, 4, 1), a=Scale(), b=Scale()), image()


@network
def fused_weights() -> tuple[Any, Any]:  # of a feature pyramid: a sum with learned shares
    def run(m: Any, x: Any) -> Any:
        w = F.relu(m.w)
        w = w / (w.sum() + 1e-4)
        return m.conv(w[0] * x + w[1] * F.max_pool2d(x, 3, 1, 1))

    return Net(run, conv=nn.Conv2d(3, 4, 1), w=nn.Parameter(torch.rand(2) + 0.5)), image()


@network
def channel_attention() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        y = m.conv(x.mean((2, 3)).unsqueeze(1)).sigmoid().transpose(1, 2).unsqueeze(-1)
        return x * y

    return Net(run, conv=nn.Conv1d(1, 1, 3, padding=1, bias=False)), image(6)


@network
def slopes() -> tuple[Any, Any]:
    layers = [nn.Conv2d(3, 4, 3), nn.PReLU(4), nn.Conv2d(4, 4, 1), nn.PReLU(), nn.GroupNorm(2, 4), nn.Hardtanh()]
    return nn.Sequential(*layers), image()


@network
def swish_beta() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        x = m.one(x)
        return m.two(x * torch.sigmoid(m.beta * x) + m.shift / math.sqrt(2))

    return Net(run, one=nn.Linear(5, 6), two=nn.Linear(6, 2), beta=weight(6), shift=weight(1, 6)), torch.randn(3, 5)


@network
def low_rank() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        return F.linear(x, m.weight + (m.b @ m.a) * 0.5, m.bias)

    return Net(run, weight=weight(4, 5), bias=weight(4), a=weight(2, 5), b=weight(4, 2)), torch.randn(3, 5)


@network
def weight_norm() -> tuple[Any, Any]:
    return nn.Sequential(nn.utils.weight_norm(nn.Conv1d(3, 4, 3)), nn.ReLU(), nn.Conv1d(4, 2, 1)), torch.randn(2, 3, 9)


@network
def weight_norm_parametrized() -> tuple[Any, Any]:
    conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(3, 4, 3))
    return nn.Sequential(conv, nn.ReLU(), nn.Conv1d(4, 2, 1)), torch.randn(2, 3, 9)


@network
def spectral_norm() -> tuple[Any, Any]:
    return nn.Sequential(nn.utils.spectral_norm(nn.Linear(6, 5)), nn.ReLU(), nn.Linear(5, 2)), torch.randn(2, 6)


@network
def pruned() -> tuple[Any, Any]:
    linear = nn.Linear(6, 5)
    mask = torch.ones(5, 6)
    mask[0, 1] = mask[3, 2] = 0
    prune.custom_from_mask(linear, "weight", mask)
    return nn.Sequential(linear, nn.Linear(5, 2)), torch.randn(2, 6)


# Tables


@network
def positions_as_sines() -> tuple[Any, Any]:
    angle = torch.arange(7)[:, None] * torch.exp(-math.log(1e4) * torch.arange(0, 8, 2) / 8)
    table = torch.cat([angle.sin(), angle.cos()], -1)

    def run(m: Any, i: Any) -> Any:
        return m.head(m.words(i) + m.table[: i.shape[1]] * m.alpha)

    parts = {"words": nn.Embedding(9, 8), "head": nn.Linear(8, 3), "alpha": nn.Parameter(torch.tensor(0.7))}
    return Net(run, table=table, **parts), torch.randint(0, 9, (2, 6))


@network
def rotary_caches() -> tuple[Any, Any]:
    angle = torch.arange(12)[:, None] * 10000.0 ** -(torch.arange(0, 8, 2) / 8)
    angle = torch.cat([angle, angle], -1)

    def run(m: Any, x: Any) -> Any:
        q = m.query(x)
        q = q * m.cos[: x.shape[1]] + torch.cat([-q[..., 4:], q[..., :4]], -1) * m.sin[: x.shape[1]]
        return m.out(q)

    parts = {"query": nn.Linear(8, 8, bias=False), "out": nn.Linear(8, 3)}
    return Net(run, cos=angle.cos(), sin=angle.sin(), **parts), torch.randn(2, 6, 8)


@network
def alibi() -> tuple[Any, Any]:
    slopes = 2.0 ** -torch.tensor([2.0, 4, 6, 8, 1, 3])
    where = torch.arange(5)

    def run(m: Any, x: Any) -> Any:
        q, k, v = m.qkv(x).reshape(2, 5, 3, 6, 2).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(2) + m.slopes[:, None, None] * m.distance + m.mask
        return m.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(2, 5, 12))

    tables = {"slopes": slopes, "distance": (where[None] - where[:, None]).float()}
    tables["mask"] = torch.full((5, 5), -1e9).triu(1)
    return Net(run, qkv=nn.Linear(12, 36), out=nn.Linear(12, 3), **tables), torch.randn(2, 5, 12)


@network
def window_mask() -> tuple[Any, Any]:
    where = torch.arange(8) // 4
    mask = torch.zeros(8, 8).masked_fill(where[:, None] != where[None], -100.0)

    def run(m: Any, x: Any) -> Any:
        y = m.query(x) @ x.transpose(1, 2) + m.bias[None] + m.mask
        return m.out(y.softmax(-1) @ x)

    parts = {"bias": weight(8, 8), "query": nn.Linear(6, 6), "out": nn.Linear(6, 2)}
    return Net(run, mask=mask, **parts), torch.randn(2, 8, 6)


@network
def fourier_features() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        angle = 2 * math.pi * x @ m.frequencies
        return m.head(torch.cat([angle.sin(), angle.cos()], -1))

    return Net(run, frequencies=torch.randn(3, 8) * 4, head=nn.Linear(16, 2)), torch.randn(5, 3)


@network
def time_embedding() -> tuple[Any, Any]:
    frequencies = torch.exp(-math.log(10000) * torch.arange(8) / 8)

    def run(m: Any, t: Any) -> Any:
        angle = t[:, None] * m.frequencies[None]
        return m.two(F.silu(m.one(torch.cat([angle.cos(), angle.sin()], -1))))

    return Net(run, frequencies=frequencies, one=nn.Linear(16, 8), two=nn.Linear(8, 3)), torch.rand(4) * 100


def mel_bank(bins: int, filters: int) -> Any:
    edges = torch.linspace(0, 1, filters + 2) ** 1.7 * (bins - 1)
    where = torch.arange(bins).float()[:, None]
    rise = (where - edges[:-2]) / (edges[1:-1] - edges[:-2])
    fall = (edges[2:] - where) / (edges[2:] - edges[1:-1])
    return torch.minimum(rise, fall).clamp(min=0)


@network
def mel_spectrogram() -> tuple[Any, Any]:
    n, hop = 64, 16
    t, k = torch.arange(n), torch.arange(n // 2 + 1)[:, None]
    window = torch.hann_window(n)
    bases = {"real": (torch.cos(2 * math.pi * k * t / n) * window)[:, None]}
    bases["imag"] = (-torch.sin(2 * math.pi * k * t / n) * window)[:, None]

    def run(m: Any, x: Any) -> Any:
        power = F.conv1d(x, m.real, stride=hop).square() + F.conv1d(x, m.imag, stride=hop).square()
        mel = torch.log(power.transpose(1, 2) @ m.bank + 1e-6).transpose(1, 2)
        return m.conv((mel - m.mean) / m.std)

    tables = {"bank": mel_bank(33, 10), "mean": torch.tensor(-4.2), "std": torch.tensor(4.6)}
    return Net(run, conv=nn.Conv1d(10, 4, 3), **bases, **tables), torch.randn(2, 1, 256)


@network
def cepstrum() -> tuple[Any, Any]:
    n, k = torch.arange(12), torch.arange(8)
    dct = torch.cos(math.pi / 12 * (n[:, None] + 0.5) * k) * math.sqrt(2 / 12)
    dct[:, 0] *= 1 / math.sqrt(2)
    return Net(lambda m, x: m.head(torch.log(x.square() @ m.bank + 1e-6) @ m.dct), bank=mel_bank(33, 12), dct=dct,
               head=nn.Linear(8, 3)), torch.randn(2, 5, 33)  # fmt: skip


@network
def windowed() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        return m.head(F.conv1d(x * m.window, m.lowpass))

    time = torch.arange(13) - 6
    lowpass = (torch.sinc(time / 3) * torch.hamming_window(13, periodic=False) / 3)[None, None]
    return Net(run, window=torch.hann_window(32), lowpass=lowpass, head=nn.Linear(20, 2)), torch.randn(2, 1, 32)


@network
def coordinates() -> tuple[Any, Any]:
    rows, columns = torch.meshgrid(torch.linspace(-1, 1, 6), torch.linspace(-1, 1, 8), indexing="ij")

    def run(m: Any, x: Any) -> Any:
        grid = torch.stack([m.columns, m.rows]).expand(x.shape[0], -1, -1, -1)
        return m.conv(torch.cat([x, grid], 1))

    return Net(run, rows=rows, columns=columns, conv=nn.Conv2d(5, 4, 3)), torch.randn(2, 3, 6, 8)


@network
def detector() -> tuple[Any, Any]:
    centres = (
        torch.stack(torch.meshgrid(torch.arange(4.0), torch.arange(4.0), indexing="xy"), -1).reshape(1, 16, 2) + 0.5
    )
    strides = torch.cat([torch.full((8, 1), 8.0), torch.full((8, 1), 16.0)])[None]

    def run(m: Any, x: Any) -> Any:
        y = m.conv(x).flatten(2).transpose(1, 2)
        share = y[..., 2:10].softmax(-1) @ m.bins
        return torch.cat([(y[..., :2].sigmoid() + m.centres) * m.strides, share[..., None]], -1)

    tables = {"centres": centres, "strides": strides, "bins": torch.arange(8.0)}
    return Net(run, conv=nn.Conv2d(3, 10, 2, 2), **tables), image()


@network
def edges() -> tuple[Any, Any]:
    sobel = torch.tensor([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]])
    filters = torch.stack([sobel, sobel.T])[:, None]

    def run(m: Any, x: Any) -> Any:
        found = F.conv2d(x.mean(1, keepdim=True), m.filters, padding=1)
        return m.conv(torch.cat([x, found], 1))

    return Net(run, filters=filters, conv=nn.Conv2d(5, 4, 3)), image()


@network
def normalized_images() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        return m.conv((x / 255 - m.image_mean) / m.image_std)

    parts = {"image_mean": torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)}
    parts["image_std"] = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    return Net(run, conv=nn.Conv2d(3, 4, 3), **parts), image() * 50 + 100


# Recurrence


@network
def recurrences() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        return m.head(m.rnn(m.gru(m.lstm(x)[0])[0])[0])

    parts = {"lstm": nn.LSTM(3, 4, 2), "gru": nn.GRU(4, 4, bidirectional=True), "rnn": nn.RNN(8, 4)}
    return Net(run, **parts, head=nn.Linear(4, 2)), torch.randn(5, 2, 3)


@network
def projected() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        h = m.start.expand(x.shape[0], -1)
        for t in range(3):
            h = m.cell(x[:, t], h)
        return m.head(h)

    return Net(run, cell=nn.GRUCell(3, 4), start=weight(1, 4), head=nn.Linear(4, 2)), torch.randn(2, 3, 3)


@network
def sums_of_products() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        y = torch.einsum("bti,oij->btoj", x, m.core)
        return torch.einsum("btoj,oj->bt", y.tanh(), m.reading) + m.offset

    return Net(run, core=weight(2, 5, 4), reading=weight(2, 4), offset=weight(6)), torch.randn(2, 6, 5)
