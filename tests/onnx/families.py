"""Small networks of many families in PyTorch, each with what its exported files are held against.

Every network has weights that an exporter moves, numbers that it makes up, or tables that look like weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

FAMILIES: dict[str, Callable[[], tuple[Any, Any]]] = {}  # name -> the network and an example


def images(*layers: Any, channels: int = 3, size: int = 8) -> tuple[Any, Any]:
    return nn.Sequential(*layers), torch.randn(2, channels, size, size)


def family(make: Callable[[], tuple[Any, Any]]) -> Callable[[], tuple[Any, Any]]:
    FAMILIES[make.__name__] = make
    return make


class Net(nn.Module):
    """A module from a function that makes its parts, and one that runs them."""

    def __init__(self, run: Callable[[Any, Any], Any], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)
        self.run = run

    def forward(self, x: Any) -> Any:
        return self.run(self, x)


def weight(*shape: int) -> Any:
    return nn.Parameter(torch.randn(*shape))


@family
def convolutions() -> tuple[Any, Any]:
    return images(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5), nn.Softplus(), nn.Linear(5, 2))


@family
def residual() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        x = F.relu(m.norm(m.stem(x)))
        return m.head((x + m.norm2(m.conv(x))).mean((2, 3)))

    parts = {"stem": nn.Conv2d(3, 4, 3, bias=False), "norm": nn.BatchNorm2d(4), "head": nn.Linear(4, 3)}
    return Net(run, **parts, conv=nn.Conv2d(4, 4, 3, padding=1), norm2=nn.BatchNorm2d(4)), torch.randn(3, 3, 8, 8)


@family
def depthwise() -> tuple[Any, Any]:
    layers = [nn.Conv2d(3, 6, 1), nn.BatchNorm2d(6), nn.Hardswish(), nn.Conv2d(6, 6, 3, groups=6), nn.BatchNorm2d(6)]
    return images(*layers, nn.ReLU6(), nn.Conv2d(6, 4, 1))


@family
def groups() -> tuple[Any, Any]:
    return images(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.GELU(), nn.Conv2d(8, 8, 3), nn.GroupNorm(8, 8))


@family
def instances() -> tuple[Any, Any]:
    layers = [nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4), nn.Tanh(), nn.Conv2d(4, 5, 3)]
    return images(*layers, nn.InstanceNorm2d(5, affine=True), nn.Sigmoid())


@family
def scaled_layers() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        y = m.norm(m.conv(x).permute(0, 2, 3, 1))
        return x + (m.gamma * m.down(F.gelu(m.up(y)))).permute(0, 3, 1, 2)

    parts = {"up": nn.Linear(4, 8), "down": nn.Linear(8, 4), "gamma": weight(4), "norm": nn.LayerNorm(4, eps=1e-6)}
    return Net(run, conv=nn.Conv2d(4, 4, 3, padding=1, groups=4), **parts), torch.randn(2, 4, 6, 6)


@family
def vision_transformer() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        x = m.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([m.cls_token.expand(x.shape[0], -1, -1), x], 1) + m.pos_embed
        q, k, v = m.qkv(m.norm(x)).reshape(x.shape[0], 5, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        y = ((q @ k.transpose(-2, -1)) * 4**-0.5).softmax(-1) @ v
        return m.head(F.gelu(x + m.out(y.transpose(1, 2).reshape(x.shape[0], 5, 8)))[:, 0])

    parts = {"patches": nn.Conv2d(3, 8, 4, 4), "cls_token": weight(1, 1, 8), "pos_embed": weight(1, 5, 8)}
    heads = {"norm": nn.LayerNorm(8), "qkv": nn.Linear(8, 24), "out": nn.Linear(8, 8), "head": nn.Linear(8, 3)}
    return Net(run, **parts, **heads), torch.randn(2, 3, 8, 8)


@family
def attention() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        return m.norm(x + m.attention(x, x, x, need_weights=False)[0])

    parts = {"attention": nn.MultiheadAttention(8, 2, batch_first=True), "norm": nn.LayerNorm(8)}
    return Net(run, **parts), torch.randn(2, 5, 8)


@family
def generator() -> tuple[Any, Any]:
    layers = [nn.ConvTranspose2d(3, 6, 4, 2, 1), nn.PReLU(6), nn.ConvTranspose2d(6, 4, 2, 2), nn.PReLU()]
    return images(*layers, nn.LeakyReLU(0.2), nn.Conv2d(4, 1, 3), size=4)


@family
def squeeze_excite() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        s = F.adaptive_avg_pool2d(x, 1)
        return x * torch.sigmoid(m.up(F.silu(m.down(s))))

    return Net(run, down=nn.Conv2d(4, 2, 1), up=nn.Conv2d(2, 4, 1)), torch.randn(2, 4, 5, 5)


@family
def u_net() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        a = F.elu(m.enter(x))
        b = F.elu(m.low(F.max_pool2d(a, 2)))
        return m.leave(torch.cat([a, F.interpolate(b, scale_factor=2.0)], 1))

    parts = {"enter": nn.Conv2d(3, 4, 3, padding=1), "low": nn.Conv2d(4, 6, 3, padding=1)}
    return Net(run, **parts, leave=nn.Conv2d(10, 2, 1)), torch.randn(2, 3, 8, 8)


@family
def text() -> tuple[Any, Any]:
    where = torch.arange(6)[:, None] * torch.exp(-math.log(1e4) * torch.arange(0, 8, 2) / 8)
    table = torch.stack([where.sin(), where.cos()], -1).reshape(1, 6, 8)

    def run(m: Any, i: Any) -> Any:
        x = m.words(i) * math.sqrt(8) + m.positions
        scores = m.query(x) @ x.transpose(1, 2) / 3 + m.mask
        return m.head(m.norm(scores.softmax(-1) @ x))

    mask = torch.full((6, 6), -math.inf).triu(1)
    parts = {"words": nn.Embedding(11, 8), "query": nn.Linear(8, 8), "norm": nn.LayerNorm(8), "head": nn.Linear(8, 11)}
    return Net(run, positions=table, mask=mask, **parts), torch.randint(0, 11, (2, 6))


@family
def tied_words() -> tuple[Any, Any]:
    return Net(lambda m, i: F.layer_norm(m.words(i), (8,)) @ m.words.weight.T, words=nn.Embedding(7, 8)), torch.randint(
        0, 7, (2, 5)
    )


@family
def learned_exponent() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        return m.head(F.relu(m.conv(x)).clamp(min=1e-6).pow(m.p).mean((2, 3)).pow(1 / m.p))

    return Net(run, conv=nn.Conv2d(3, 4, 3), p=nn.Parameter(torch.full((1,), 3.0)), head=nn.Linear(4, 2)), torch.randn(
        2, 3, 6, 6
    )


@family
def root_mean_square() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * m.weight
        return m.down(F.silu(m.gate(x)) * m.up(x)) + (x.abs() + 0.1) ** 1.7 / math.sqrt(2)

    parts = {"gate": nn.Linear(6, 9, bias=False), "up": nn.Linear(6, 9, bias=False), "down": nn.Linear(9, 6)}
    return Net(run, weight=weight(6), **parts), torch.randn(3, 4, 6)


@family
def relative_positions() -> tuple[Any, Any]:
    index = torch.arange(4)[:, None] - torch.arange(4)[None] + 3
    mask = torch.zeros(4, 4).masked_fill(torch.tensor([[i // 2 != j // 2 for j in range(4)] for i in range(4)]), -100.0)

    def run(m: Any, x: Any) -> Any:
        bias = m.table[m.pairs.reshape(-1)].reshape(4, 4)
        return m.out((m.scale.exp() * (x @ x.transpose(1, 2)) + bias + m.mask).softmax(-1) @ x)

    parts = {"table": weight(7), "pairs": index, "mask": mask, "scale": nn.Parameter(torch.tensor(0.3))}
    return Net(run, **parts, out=nn.Linear(6, 6)), torch.randn(2, 4, 6)


@family
def rotary() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        angle = torch.arange(5, dtype=x.dtype)[:, None] * m.inv_freq
        cos, sin = torch.cat([angle, angle], -1).cos(), torch.cat([angle, angle], -1).sin()
        q = m.query(x)
        q = q * cos + torch.cat([-q[..., 4:], q[..., :4]], -1) * sin
        return m.out(q @ q.transpose(1, 2) * 8**-0.5)

    parts = {"query": nn.Linear(8, 8, bias=False), "out": nn.Linear(5, 3)}
    return Net(run, inv_freq=10000.0 ** -(torch.arange(0, 8, 2) / 8), **parts), torch.randn(2, 5, 8)


@family
def super_resolution() -> tuple[Any, Any]:
    return images(nn.Conv2d(3, 8, 3, padding=1), nn.PixelShuffle(2), nn.Softsign(), nn.Conv2d(2, 3, 3, padding=1))


@family
def temporal() -> tuple[Any, Any]:
    layers = [nn.Conv1d(3, 6, 3, dilation=2), nn.BatchNorm1d(6), nn.GLU(1), nn.Conv1d(3, 4, 1), nn.GroupNorm(1, 4)]
    return nn.Sequential(*layers), torch.randn(4, 3, 9)


@family
def mixer() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        x = x + m.tokens(m.first(x).transpose(1, 2)).transpose(1, 2)
        return x + m.channels(F.mish(m.second(x)))

    parts = {"first": nn.LayerNorm(6), "second": nn.LayerNorm(6), "tokens": nn.Linear(4, 4)}
    return Net(run, **parts, channels=nn.Linear(6, 6)), torch.randn(2, 4, 6)


@family
def blurred() -> tuple[Any, Any]:
    row = torch.tensor([1.0, 2.0, 1.0]) / 4
    kernel = torch.outer(row, row).expand(4, 1, 3, 3).clone()

    def run(m: Any, x: Any) -> Any:
        x = m.conv((x - m.pixel_mean) / m.pixel_std)
        return m.head(F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), m.kernel, stride=2, groups=4))

    norm = {"pixel_mean": torch.randn(3, 1, 1), "pixel_std": torch.rand(3, 1, 1) + 0.5, "kernel": kernel}
    return Net(run, conv=nn.Conv2d(3, 4, 3), head=nn.Conv2d(4, 2, 1), **norm), torch.randn(2, 3, 8, 8)


@family
def modulated() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        scale, shift = m.style(x.mean((2, 3))).chunk(2, 1)
        y = m.conv(x) * (1 + scale[:, :, None, None]) + shift[:, :, None, None]
        return F.leaky_relu(y + m.bias[:, None, None], 0.2) * math.sqrt(2) * m.gain + m.noise[None, :, None, None]

    parts = {"style": nn.Linear(3, 8), "bias": weight(4), "gain": nn.Parameter(torch.tensor(1.5)), "noise": weight(4)}
    return Net(run, conv=nn.Conv2d(3, 4, 3), **parts), torch.randn(2, 3, 6, 6)


@family
def normed_weights() -> tuple[Any, Any]:
    conv = nn.Conv2d(3, 4, 3)

    def run(m: Any, x: Any) -> Any:
        w = m.conv.weight
        w = (w - w.mean((1, 2, 3), keepdim=True)) / (w.var((1, 2, 3), keepdim=True, unbiased=False) + 1e-5).sqrt()
        return m.norm(F.conv2d(x, w, m.conv.bias))

    return Net(run, conv=conv, norm=nn.GroupNorm(2, 4)), torch.randn(2, 3, 6, 6)


@family
def sequences() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        return m.head(m.second(m.first(x)[0])[0][:, -1])

    parts = {"first": nn.LSTM(3, 4, bidirectional=True, batch_first=True), "second": nn.GRU(8, 4, 2, batch_first=True)}
    return Net(run, **parts, head=nn.Linear(4, 2)), torch.randn(3, 5, 3)


@family
def learned_states() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        h, c = (state.expand(-1, x.shape[1], -1).contiguous() for state in (m.h0, m.c0))
        return m.cell(x, (h, c))[0] + m.gru(x, m.states)[0]

    parts = {"cell": nn.LSTM(3, 4), "h0": weight(1, 1, 4), "c0": weight(1, 1, 4)}
    return Net(run, **parts, gru=nn.GRU(3, 4), states=weight(1, 2, 4)), torch.randn(5, 2, 3)


@family
def plain_recurrence() -> tuple[Any, Any]:  # which the newer exporter writes as sums and products
    return Net(lambda m, x: m.head(m.cell(x)[0][-1]), cell=nn.RNN(3, 4, 2), head=nn.Linear(4, 2)), torch.randn(5, 2, 3)


@family
def plain_learned_state() -> tuple[Any, Any]:
    return Net(lambda m, x: m.cell(x, m.h0)[0], cell=nn.RNN(3, 4), h0=weight(1, 2, 4)), torch.randn(5, 2, 3)


@family
def learned_queries() -> tuple[Any, Any]:  # which meet weights before they meet values of the network
    def run(m: Any, x: Any) -> Any:
        q = m.norm(m.latents.unsqueeze(0).expand(x.shape[0], -1, -1))
        y = (m.query(q) @ m.key(x).transpose(1, 2) * 8**-0.5).softmax(-1) @ x
        z = m.tokens.unsqueeze(1).repeat(1, x.shape[0], 1).transpose(0, 1)
        return y + (m.key(z) @ y.transpose(1, 2)).softmax(-1) @ y

    parts = {"latents": weight(4, 8), "tokens": weight(4, 8), "norm": nn.LayerNorm(8)}
    return Net(run, query=nn.Linear(8, 8), key=nn.Linear(8, 8), **parts), torch.randn(2, 5, 8)


@family
def cloned_layers() -> tuple[Any, Any]:  # two of equal weights, and one that is called three times
    def run(m: Any, x: Any) -> Any:
        x = m.first(m.shared(x))
        return m.shared(m.second(m.shared(x)))

    first, second = nn.Linear(6, 6), nn.Linear(6, 6)
    second.load_state_dict(first.state_dict())
    return Net(run, first=first, second=second, shared=nn.Linear(6, 6)), torch.randn(2, 3, 6)


@family
def standardized() -> tuple[Any, Any]:
    def run(m: Any, x: Any) -> Any:
        w = F.batch_norm(m.conv.weight.reshape(1, 4, 27), None, None, training=True, momentum=0.0)
        return m.norm(F.conv2d(x, w.reshape(4, 3, 3, 3), m.conv.bias))

    return Net(run, conv=nn.Conv2d(3, 4, 3), norm=nn.GroupNorm(2, 4)), torch.randn(2, 3, 6, 6)


@family
def modulated_kernels() -> tuple[Any, Any]:  # a style for each sample, a learned beginning
    def run(m: Any, x: Any) -> Any:
        kernel = m.kernel.unsqueeze(0) * m.style(x).reshape(2, 1, 4, 1, 1) / 6
        kernel = kernel * torch.rsqrt(kernel.square().sum((2, 3, 4), keepdim=True) + 1e-8)
        start = m.start.unsqueeze(0).repeat(x.shape[0], 1, 1, 1).reshape(1, 8, 5, 5)
        return F.conv2d(start, kernel.reshape(10, 4, 3, 3), groups=2).reshape(2, 5, 9)

    return Net(run, style=nn.Linear(6, 4), kernel=weight(5, 4, 3, 3), start=weight(4, 5, 5)), torch.randn(2, 6)
