"""Networks that make images or change them, and others of images."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tests.onnx.strangers.network import IMAGE, Net, conv_norm, family, weight


@family({"z": ("n", 8, 1, 1)})
def dcgan() -> Any:
    layers = [nn.ConvTranspose2d(8, 12, 4, 1, 0, bias=False), nn.BatchNorm2d(12), nn.ReLU()]
    more = [nn.ConvTranspose2d(12, 6, 4, 2, 1, bias=False), nn.BatchNorm2d(6), nn.ReLU()]
    return nn.Sequential(*layers, *more, nn.ConvTranspose2d(6, 3, 3, 2, 1, output_padding=1), nn.Tanh())


@family({"z": ("n", 6)})
def style_generator() -> Any:
    def run(m: Any, z: Any) -> Any:
        w = F.leaky_relu(m.mapping(z * torch.rsqrt(z.pow(2).mean(1, keepdim=True) + 1e-8)), 0.2) * math.sqrt(2)
        n = z.shape[0]
        s = m.style(w).reshape(n, 1, 4, 1, 1) + 1
        kernel = m.weight.unsqueeze(0) * s / math.sqrt(36)
        kernel = kernel * torch.rsqrt(kernel.square().sum((2, 3, 4), keepdim=True) + 1e-8)
        x = m.const.unsqueeze(0).repeat(n, 1, 1, 1).reshape(1, n * 4, 6, 6)
        x = F.conv2d(x, kernel.reshape(n * 5, 4, 3, 3), padding=1, groups=n).reshape(n, 5, 6, 6)
        return F.leaky_relu(x + m.bias.view(1, -1, 1, 1) + m.noise_const * m.strength, 0.2)

    parts = {"mapping": nn.Linear(6, 6), "style": nn.Linear(6, 4), "weight": weight(5, 4, 3, 3), "bias": weight(5)}
    return Net(
        run, **parts, const=weight(4, 6, 6), noise_const=torch.randn(6, 6), strength=nn.Parameter(torch.tensor(0.1))
    )


@family({"z": ("n", 6)})
def style_generator_demodulated() -> Any:  # as above, the batch through scales of channels
    def run(m: Any, z: Any) -> Any:
        s = m.style(z)
        x = m.const.expand(z.shape[0], -1, -1, -1) * s[:, :, None, None]
        d = torch.rsqrt((m.weight.square().sum((2, 3)) @ s.square().T).T + 1e-8)
        return F.conv2d(x, m.weight, padding=1) * d[:, :, None, None] + m.bias[None, :, None, None]

    return Net(run, style=nn.Linear(6, 4), weight=weight(5, 4, 3, 3), bias=weight(5), const=weight(1, 4, 5, 5))


@family(IMAGE)
def style_transfer() -> Any:
    layers = [nn.ReflectionPad2d(3), nn.Conv2d(3, 6, 7), nn.InstanceNorm2d(6, affine=True), nn.ReLU()]
    more = [
        nn.Conv2d(6, 6, 3, 2, 1),
        nn.InstanceNorm2d(6),
        nn.ReLU(),
        nn.Upsample(scale_factor=2),
        nn.ReflectionPad2d(1),
    ]
    return nn.Sequential(*layers, *more, nn.Conv2d(6, 3, 3), nn.Tanh())


@family({"x": ("n", 4, "h", "w"), "seg": ("n", 2, "h", "w")})
def spade() -> Any:
    def run(m: Any, x: Any, seg: Any) -> Any:
        a = F.relu(m.shared(F.interpolate(seg, size=x.shape[-2:], mode="nearest")))
        return m.norm(x) * (1 + m.gamma(a)) + m.beta(a)

    parts = {"norm": nn.BatchNorm2d(4, affine=False), "shared": nn.Conv2d(2, 5, 3, 1, 1)}
    return Net(run, **parts, gamma=nn.Conv2d(5, 4, 3, 1, 1), beta=nn.Conv2d(5, 4, 3, 1, 1))


@family(IMAGE, h=12, w=12)
def super_resolution() -> Any:
    def run(m: Any, x: Any) -> Any:
        y = m.act(m.a(x))
        y = m.up(y + m.norm(m.b(y)))
        return y + F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False)

    up = nn.Sequential(nn.Conv2d(6, 12, 3, 1, 1), nn.PixelShuffle(2), nn.PReLU(3))
    return Net(
        run, a=nn.Conv2d(3, 6, 3, 1, 1), act=nn.PReLU(), b=nn.Conv2d(6, 6, 3, 1, 1), norm=nn.BatchNorm2d(6), up=up
    )


@family({"x": ("n", 4, "h", "w"), "t": ("n",)}, h=16, w=16, positive=True)
def diffusion() -> Any:
    def run(m: Any, x: Any, t: Any) -> Any:
        freq = torch.exp(-math.log(10000.0) * torch.arange(4, dtype=torch.float32) / 4).to(x.dtype)
        e = t[:, None] * 100 * freq[None]
        e = m.t2(F.silu(m.t1(torch.cat([e.cos(), e.sin()], -1))))
        h = m.c1(F.silu(m.n1(x)))
        scale, shift = m.emb(F.silu(e))[:, :, None, None].chunk(2, 1)
        h = x + m.c2(F.silu(m.n2(h) * (1 + scale) + shift))
        n, c, height, width = h.shape
        q, k, v = m.qkv(m.n3(h).reshape(n, c, -1).transpose(1, 2)).chunk(3, -1)
        h = h + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, c, height, width)
        return m.down(h)

    parts = {"t1": nn.Linear(8, 8), "t2": nn.Linear(8, 8), "emb": nn.Linear(8, 8), "qkv": nn.Linear(4, 12)}
    parts |= {f"n{i}": nn.GroupNorm(2, 4, eps=1e-6) for i in (1, 2, 3)}
    return Net(run, **parts, c1=nn.Conv2d(4, 4, 3, 1, 1), c2=nn.Conv2d(4, 4, 3, 1, 1), down=nn.Conv2d(4, 4, 3, 2, 1))


@family({"a": ("n", 3, "h", "w"), "flow": ("n", 2, "h", "w")}, h=12, w=12)
def warping() -> Any:
    def run(m: Any, a: Any, flow: Any) -> Any:
        ys, xs = torch.linspace(-1, 1, 12).to(a.dtype), torch.linspace(-1, 1, 12).to(a.dtype)
        base = torch.stack(torch.meshgrid(ys, xs, indexing="ij")[::-1], -1)
        f = F.interpolate(m.flow(flow), size=(12, 12), mode="bilinear").permute(0, 2, 3, 1)
        return m.conv(F.grid_sample(a, base + 0.1 * f, align_corners=True, padding_mode="border"))

    return Net(run, flow=nn.Conv2d(2, 2, 3, 1, 1), conv=nn.Conv2d(3, 4, 3))


@family(("n", 1, 16, 16))
def spatial_transformer() -> Any:
    def run(m: Any, x: Any) -> Any:
        theta = m.loc2(F.relu(m.loc1(x).flatten(1))).view(-1, 2, 3)
        grid = F.affine_grid(theta, [x.shape[0], 1, 16, 16], align_corners=False)
        return m.head(F.grid_sample(x, grid, align_corners=False).flatten(1))

    return Net(run, loc1=nn.Conv2d(1, 2, 5, 3), loc2=nn.Linear(32, 6), head=nn.Linear(256, 3))


@family(("n", 2, 8, "h", "w"), h=12, w=12)
def volumes() -> Any:
    layers = [nn.Conv3d(2, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU(), nn.MaxPool3d((1, 2, 2)), nn.Conv3d(4, 4, 3)]
    return nn.Sequential(*layers, nn.ConvTranspose3d(4, 2, 2, 2), nn.AvgPool3d(2))


@family(IMAGE, h=12, w=12)
def involution() -> Any:  # a kernel for every place
    def run(m: Any, x: Any) -> Any:
        n, c, h, w = x.shape
        k = m.span(F.relu(m.reduce(x))).view(n, 1, 9, h, w)
        return (F.unfold(x, 3, padding=1).view(n, c, 9, h, w) * k).sum(2)

    return Net(run, reduce=nn.Conv2d(3, 2, 1), span=nn.Conv2d(2, 9, 1))


@family(IMAGE)
def coordinates() -> Any:
    def run(m: Any, x: Any) -> Any:
        n, _, h, w = x.shape
        ys = (torch.arange(h, dtype=x.dtype) / (h - 1) * 2 - 1).view(1, 1, h, 1).expand(n, 1, h, w)
        xs = (torch.arange(w, dtype=x.dtype) / (w - 1) * 2 - 1).view(1, 1, 1, w).expand(n, 1, h, w)
        return m.conv(torch.cat([x, ys, xs], 1))

    return Net(run, conv=nn.Conv2d(5, 4, 3, 2, 1))


@family(IMAGE)
def weight_normed() -> Any:
    conv = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 6, 3, 2, 1))
    return nn.Sequential(conv, nn.ELU(), nn.utils.parametrizations.weight_norm(nn.Conv2d(6, 4, 3)), nn.CELU())


@family(("n", 3, 24, 24))
def layer_normed_images() -> Any:
    return nn.Sequential(nn.Conv2d(3, 4, 3, 3), nn.LayerNorm([4, 8, 8]), nn.SELU(), nn.Flatten(), nn.Linear(256, 3))


@family(IMAGE)
def heads_in_parallel() -> Any:
    def run(m: Any, x: Any) -> Any:
        x = m.body(x)
        return F.log_softmax(m.kind(x.mean((2, 3))), 1), m.mask(x), x.std((2, 3))

    return Net(run, body=conv_norm(3, 6, 3, 2, nn.LeakyReLU(0.1)), kind=nn.Linear(6, 4), mask=nn.Conv2d(6, 1, 1))


@family(IMAGE)
def reparametrized() -> Any:  # RepVGG while it trains
    def run(m: Any, x: Any) -> Any:
        x = m.stem(x)
        return F.relu(m.three(x) + m.one(x) + m.none(x))

    three, one = conv_norm(6, 6, 3, 1, nn.Identity()), conv_norm(6, 6, 1, 1, nn.Identity())
    return Net(run, stem=nn.Conv2d(3, 6, 3, 2, 1), three=three, one=one, none=nn.BatchNorm2d(6))


@family(IMAGE, h=16, w=16)
def local_windows() -> Any:  # Swin: windows, shifted, with a bias for each distance
    def run(m: Any, x: Any) -> Any:
        x = m.patches(x).permute(0, 2, 3, 1)
        n, h, w, c = x.shape
        y = torch.roll(m.norm(x), (-2, -2), (1, 2))
        y = y.view(n, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        q, k, v = m.qkv(y).reshape(-1, 16, 3, 2, 4).permute(2, 0, 3, 1, 4)
        bias = m.table[m.pairs.view(-1)].view(16, 16, -1).permute(2, 0, 1).contiguous()
        a = (q * 4**-0.5 @ k.transpose(-2, -1) + bias.unsqueeze(0)).softmax(-1)
        y = m.proj((a @ v).transpose(1, 2).reshape(-1, 16, c))
        y = y.view(n, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
        return x + torch.roll(y, (2, 2), (1, 2))

    places = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")).flatten(1)
    apart = places[:, :, None] - places[:, None] + 3
    parts = {"patches": nn.Conv2d(3, 8, 2, 2), "norm": nn.LayerNorm(8), "qkv": nn.Linear(8, 24)}
    return Net(run, **parts, table=weight(49, 2), pairs=apart[0] * 7 + apart[1], proj=nn.Linear(8, 8))
