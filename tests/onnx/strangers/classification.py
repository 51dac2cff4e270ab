"""Convolutional networks that classify."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tests.onnx.strangers.network import IMAGE, Net, conv_norm, family, weight


@family(IMAGE)
def vgg() -> Any:
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.0), nn.Linear(8, 4))


class Basic(nn.Module):
    def __init__(self, a: int, b: int, stride: int = 1, act: Any = None) -> None:
        super().__init__()
        self.conv1, self.conv2 = conv_norm(a, b, 3, stride, act), conv_norm(b, b, act=nn.Identity())
        self.down = conv_norm(a, b, 1, stride, nn.Identity()) if (a, stride) != (b, 1) else nn.Identity()

    def forward(self, x: Any) -> Any:
        return F.relu(self.conv2(self.conv1(x)) + self.down(x))


@family(IMAGE)
def resnet() -> Any:
    stem = nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(
        stem, Basic(8, 8), Basic(8, 12, 2), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(12, 5)
    )


@family(IMAGE)
def resnet_d() -> Any:
    def run(m: Any, x: Any) -> Any:
        x = m.stem(x)
        return m.head((m.body(x) + m.down(x)).mean((-2, -1)))

    down = nn.Sequential(
        nn.AvgPool2d(2, 2, ceil_mode=True, count_include_pad=False), nn.Conv2d(8, 12, 1), nn.BatchNorm2d(12)
    )
    return Net(run, stem=conv_norm(3, 8, 3, 2), body=conv_norm(8, 12, 3, 2), down=down, head=nn.Linear(12, 3))


@family(IMAGE)
def resnext() -> Any:
    return nn.Sequential(conv_norm(3, 16, 3, 2), conv_norm(16, 16, groups=4), conv_norm(16, 8, 1), nn.Conv2d(8, 2, 1))


@family(IMAGE)
def mobilenet_v2() -> Any:
    def block(a: int, b: int, s: int) -> Any:
        return nn.Sequential(
            conv_norm(a, 3 * a, 1, 1, nn.ReLU6()),
            conv_norm(3 * a, 3 * a, 3, s, nn.ReLU6(), groups=3 * a),
            nn.Conv2d(3 * a, b, 1, bias=False),
            nn.BatchNorm2d(b),
        )

    def run(m: Any, x: Any) -> Any:
        x = m.one(m.stem(x))
        return m.head(F.adaptive_avg_pool2d(x + m.two(x), 1).flatten(1))

    return Net(
        run, stem=conv_norm(3, 4, 3, 2, nn.ReLU6()), one=block(4, 6, 2), two=block(6, 6, 1), head=nn.Linear(6, 4)
    )


class Excite(nn.Module):
    def __init__(self, c: int, act: Any, gate: Any) -> None:
        super().__init__()
        self.reduce, self.expand, self.act, self.gate = nn.Conv2d(c, 2, 1), nn.Conv2d(2, c, 1), act, gate

    def forward(self, x: Any) -> Any:
        return x * self.gate(self.expand(self.act(self.reduce(x.mean((2, 3), keepdim=True)))))


@family(IMAGE)
def mobilenet_v3() -> Any:
    layers = [conv_norm(3, 8, 3, 2, nn.Hardswish()), conv_norm(8, 8, 5, 2, nn.Hardswish(), groups=8)]
    return nn.Sequential(*layers, Excite(8, nn.ReLU(), nn.Hardsigmoid()), conv_norm(8, 6, 1, act=nn.Hardswish()))


class Same(nn.Conv2d):
    """TensorFlow's SAME: zeros by the length."""

    def forward(self, x: Any) -> Any:
        pads = []
        for n, k, s in zip(reversed(x.shape[-2:]), reversed(self.kernel_size), reversed(self.stride), strict=True):
            total = max((math.ceil(n / s) - 1) * s + k - n, 0)
            pads += [total // 2, total - total // 2]
        return self._conv_forward(F.pad(x, pads), self.weight, self.bias)


@family(IMAGE)
def efficientnet() -> Any:
    def run(m: Any, x: Any) -> Any:
        x = F.silu(m.norm0(m.stem(x)))
        y = m.excite(F.silu(m.norm1(m.depth(m.expand(x)))))
        return m.head(F.silu(m.norm2(m.project(y)) + F.avg_pool2d(x, 2, 2)).mean((2, 3)))

    parts = {"stem": Same(3, 6, 3, 2, bias=False), "norm0": nn.BatchNorm2d(6, eps=1e-3, momentum=0.01)}
    parts |= {"expand": nn.Conv2d(6, 12, 1), "depth": nn.Conv2d(12, 12, 3, 2, 1, groups=12, bias=False)}
    parts |= {"norm1": nn.BatchNorm2d(12), "project": nn.Conv2d(12, 6, 1), "norm2": nn.BatchNorm2d(6)}
    return Net(run, **parts, excite=Excite(12, nn.SiLU(), nn.Sigmoid()), head=nn.Linear(6, 3))


@family(IMAGE)
def efficientnet_even() -> Any:  # a free height that the stride divides, as torch.export wants it
    return nn.Sequential(Same(3, 4, 3, 2), nn.BatchNorm2d(4), nn.SiLU(), Same(4, 4, 5, 2, groups=4), nn.SiLU())


class ChannelNorm(nn.Module):
    """ConvNeXt's LayerNorm of (N, C, H, W)."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(c)), nn.Parameter(torch.zeros(c))

    def forward(self, x: Any) -> Any:
        u = x.mean(1, keepdim=True)
        s = (x - u).pow(2).mean(1, keepdim=True)
        x = (x - u) / torch.sqrt(s + 1e-6)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


@family(IMAGE)
def convnext() -> Any:
    def run(m: Any, x: Any) -> Any:
        x = m.stem_norm(m.stem(x))
        y = m.norm(m.depth(x).permute(0, 2, 3, 1))
        x = x + (m.gamma * m.two(F.gelu(m.one(y)))).permute(0, 3, 1, 2)
        return m.head(m.last(x.mean([-2, -1])))

    parts = {"stem": nn.Conv2d(3, 8, 4, 4), "stem_norm": ChannelNorm(8), "depth": nn.Conv2d(8, 8, 7, 1, 3, groups=8)}
    parts |= {"norm": nn.LayerNorm(8, eps=1e-6), "one": nn.Linear(8, 32), "two": nn.Linear(32, 8), "gamma": weight(8)}
    return Net(run, **parts, last=nn.LayerNorm(8, eps=1e-6), head=nn.Linear(8, 4))


@family(IMAGE)
def densenet() -> Any:
    def run(m: Any, x: Any) -> Any:
        found = [m.stem(x)]
        for norm, conv in zip(m.norms, m.convs, strict=True):
            found.append(conv(F.relu(norm(torch.cat(found, 1)))))
        return F.avg_pool2d(m.trans(torch.cat(found, 1)), 2)

    norms, convs = [nn.BatchNorm2d(4 + 3 * i) for i in range(3)], [nn.Conv2d(4 + 3 * i, 3, 3, 1, 1) for i in range(3)]
    return Net(run, stem=nn.Conv2d(3, 4, 3, 2, 1), norms=norms, convs=convs, trans=conv_norm(13, 5, 1))


@family(IMAGE)
def shufflenet() -> Any:
    def run(m: Any, x: Any) -> Any:
        a, b = m.stem(x).chunk(2, 1)
        x = torch.cat([a, m.branch(b)], 1)
        n, c, h, w = x.shape
        return m.head(x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w).mean([2, 3]))

    branch = nn.Sequential(conv_norm(4, 4, 1), conv_norm(4, 4, 3, 1, nn.Identity(), groups=4), conv_norm(4, 4, 1))
    return Net(run, stem=conv_norm(3, 8, 3, 2), branch=branch, head=nn.Linear(8, 3))


@family(IMAGE)
def squeezenet() -> Any:
    def run(m: Any, x: Any) -> Any:
        x = F.max_pool2d(F.relu(m.stem(x)), 3, 2, ceil_mode=True)
        x = F.relu(m.squeeze(x))
        return m.head(torch.cat([F.relu(m.one(x)), F.relu(m.three(x))], 1)).mean((2, 3))

    parts = {"stem": nn.Conv2d(3, 8, 3, 2), "squeeze": nn.Conv2d(8, 4, 1), "one": nn.Conv2d(4, 6, 1)}
    return Net(run, **parts, three=nn.Conv2d(4, 6, 3, padding=1), head=nn.Conv2d(12, 5, 1))


@family(IMAGE)
def inception() -> Any:
    def run(m: Any, x: Any) -> Any:
        x = m.stem(x)
        pooled = m.pool(F.avg_pool2d(x, 3, 1, 1, count_include_pad=True))
        return torch.cat([m.one(x), m.two(m.reduce(x)), pooled, F.max_pool2d(x, 3, 1, 1)], 1)

    parts = {"stem": conv_norm(3, 6, 3, 2), "one": conv_norm(6, 4, 1), "reduce": conv_norm(6, 4, 1)}
    tall = nn.Sequential(nn.Conv2d(4, 4, (1, 7), padding=(0, 3)), nn.Conv2d(4, 4, (7, 1), padding=(3, 0)), nn.ReLU())
    return Net(run, **parts, two=tall, pool=conv_norm(6, 3, 1))


class Standardized(nn.Conv2d):
    def forward(self, x: Any) -> Any:
        w = F.batch_norm(
            self.weight.reshape(1, self.out_channels, -1), None, None, training=True, momentum=0.0, eps=1e-6
        ).reshape_as(self.weight)
        return F.conv2d(x, w, self.bias, self.stride, self.padding)


@family(IMAGE)
def big_transfer() -> Any:  # weights standardized, GroupNorm
    return nn.Sequential(Standardized(3, 8, 3, 2, 1), nn.GroupNorm(4, 8), nn.ReLU(), Standardized(8, 8, 3, padding=1))


@family(IMAGE)
def nfnet() -> Any:
    def run(m: Any, x: Any) -> Any:
        x = m.stem(x)
        y = F.gelu(x) * 1.7015043497085571 * 0.98
        return x + m.conv(y) * m.skip_gain * 0.2

    return Net(
        run, stem=nn.Conv2d(3, 6, 3, 2, 1), conv=nn.Conv2d(6, 6, 3, 1, 1), skip_gain=nn.Parameter(torch.zeros(()))
    )


@family(IMAGE)
def res2net() -> Any:
    def run(m: Any, x: Any) -> Any:
        x = m.stem(x)
        parts = torch.split(x, 2, 1)
        y, done = parts[0], [parts[0]]
        for part, conv in zip(parts[1:], m.convs, strict=True):
            y = F.relu(conv(part + y))
            done.append(y)
        return torch.cat(done, 1) + x

    return Net(run, stem=nn.Conv2d(3, 8, 3, 2, 1), convs=[nn.Conv2d(2, 2, 3, 1, 1) for _ in range(3)])


@family(IMAGE)
def cbam() -> Any:
    def run(m: Any, x: Any) -> Any:
        x = m.stem(x)
        c = m.mlp(x.amax((2, 3))) + m.mlp(x.mean((2, 3)))
        x = x * torch.sigmoid(c)[:, :, None, None]
        return x * torch.sigmoid(m.space(torch.cat([x.max(1, keepdim=True)[0], x.mean(1, keepdim=True)], 1)))

    mlp = nn.Sequential(nn.Linear(6, 3), nn.ReLU(), nn.Linear(3, 6))
    return Net(run, stem=nn.Conv2d(3, 6, 3, 2, 1), mlp=mlp, space=nn.Conv2d(2, 1, 7, padding=3, bias=False))


@family(IMAGE)
def efficient_channels() -> Any:  # ECA: a 1-D convolution over channels
    def run(m: Any, x: Any) -> Any:
        x = m.stem(x)
        y = m.conv(x.mean((2, 3), keepdim=True).squeeze(-1).transpose(-1, -2)).transpose(-1, -2).unsqueeze(-1)
        return x * y.sigmoid().expand_as(x)

    return Net(run, stem=nn.Conv2d(3, 8, 3, 2, 1), conv=nn.Conv1d(1, 1, 3, padding=1, bias=False))


@family(IMAGE)
def non_local() -> Any:
    def run(m: Any, x: Any) -> Any:
        x = m.stem(x)
        n, _, h, w = x.shape
        q, k, v = (f(x).reshape(n, 3, h * w) for f in (m.q, m.k, m.v))
        y = (v @ (q.transpose(1, 2) @ k).softmax(-1).transpose(1, 2)).reshape(n, 3, h, w)
        return x + m.norm(m.out(y))

    parts = {name: nn.Conv2d(6, 3, 1) for name in "qkv"}
    return Net(run, stem=nn.Conv2d(3, 6, 3, 4, 1), **parts, out=nn.Conv2d(3, 6, 1), norm=nn.BatchNorm2d(6))


@family(IMAGE)
def alexnet() -> Any:
    layers = [nn.Conv2d(3, 8, 5, 2, 2), nn.ReLU(), nn.LocalResponseNorm(5), nn.MaxPool2d(3, 2), nn.Conv2d(8, 6, 3)]
    return nn.Sequential(*layers, nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(6, 3))


@family(IMAGE)
def poolformer() -> Any:
    def run(m: Any, x: Any) -> Any:
        x = m.stem(x)
        y = m.norm(x)
        return x + m.scale[:, None, None] * (F.avg_pool2d(y, 3, 1, 1, count_include_pad=False) - y)

    return Net(run, stem=nn.Conv2d(3, 6, 7, 4, 2), norm=nn.GroupNorm(1, 6), scale=weight(6))


@family(IMAGE)
def antialiased() -> Any:  # a fixed blur, reflected edges
    row = torch.tensor([1.0, 3.0, 3.0, 1.0])
    kernel = (torch.outer(row, row) / 64).repeat(6, 1, 1, 1)

    def run(m: Any, x: Any) -> Any:
        x = F.relu(m.stem(x))
        return m.head(F.conv2d(F.pad(x, (1, 2, 1, 2), mode="reflect"), m.filt, stride=2, groups=6))

    return Net(run, stem=nn.Conv2d(3, 6, 3, 1, 1), filt=kernel, head=nn.Conv2d(6, 2, 1))
