"""Convolutional networks that see where things are: segmentation and detection."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tests.onnx.strangers.network import IMAGE, Net, conv_norm, family


@family(IMAGE)
def unet_transposed() -> Any:  # refuses what 4 does not divide
    def run(m: Any, x: Any) -> Any:
        a = m.a(x)
        b = m.b(F.max_pool2d(a, 2))
        c = m.c(F.max_pool2d(b, 2))
        b = m.d(torch.cat([b, m.up1(c)], 1))
        return m.out(torch.cat([a, m.up2(b)], 1))

    parts = {"a": conv_norm(3, 4), "b": conv_norm(4, 6), "c": conv_norm(6, 8), "d": conv_norm(12, 6)}
    up = {"up1": nn.ConvTranspose2d(8, 6, 2, 2), "up2": nn.ConvTranspose2d(6, 4, 2, 2)}
    return Net(run, **parts, **up, out=nn.Conv2d(8, 2, 1))


@family(IMAGE)
def unet_padded() -> Any:  # pads what came up to what it joins
    def run(m: Any, x: Any) -> Any:
        a = m.a(x)
        b = m.up(m.b(F.max_pool2d(a, 2)))
        dy, dx = a.size(2) - b.size(2), a.size(3) - b.size(3)
        b = F.pad(b, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return m.out(torch.cat([a, b], 1))

    parts = {"a": conv_norm(3, 4), "b": conv_norm(4, 6), "up": nn.ConvTranspose2d(6, 4, 2, 2)}
    return Net(run, **parts, out=nn.Conv2d(8, 2, 1))


@family(IMAGE)
def pyramid() -> Any:
    def run(m: Any, x: Any) -> Any:
        a = F.relu(m.a(x))
        b = F.relu(m.b(a))
        c = F.relu(m.c(b))
        p3 = m.lc(c)
        p2 = m.lb(b) + F.interpolate(p3, size=b.shape[-2:], mode="nearest")
        p1 = m.la(a) + F.interpolate(p2, size=a.shape[-2:], mode="nearest")
        return p1, p2, F.max_pool2d(p3, 1, 2, 0)

    convs = {"a": nn.Conv2d(3, 4, 3, 2, 1), "b": nn.Conv2d(4, 6, 3, 2, 1), "c": nn.Conv2d(6, 8, 3, 2, 1)}
    return Net(run, **convs, la=nn.Conv2d(4, 5, 1), lb=nn.Conv2d(6, 5, 1), lc=nn.Conv2d(8, 5, 1))


@family(IMAGE)
def deeplab() -> Any:
    def run(m: Any, x: Any) -> Any:
        y = m.stem(x)
        pooled = F.interpolate(m.pool(F.adaptive_avg_pool2d(y, 1)), size=y.shape[-2:], mode="bilinear")
        y = torch.cat([m.one(y), m.six(y), m.twelve(y), pooled], 1)
        return F.interpolate(m.head(y), size=x.shape[-2:], mode="bilinear", align_corners=False)

    parts = {"stem": conv_norm(3, 6, 3, 4), "one": conv_norm(6, 4, 1), "pool": nn.Conv2d(6, 4, 1)}
    wide = {"six": nn.Conv2d(6, 4, 3, padding=6, dilation=6), "twelve": nn.Conv2d(6, 4, 3, padding=12, dilation=12)}
    return Net(run, **parts, **wide, head=nn.Conv2d(16, 3, 1))


@family(("n", 3, 36, 36))
def pyramid_pooling() -> Any:
    def run(m: Any, x: Any) -> Any:
        x = F.relu(m.stem(x))
        found = [
            F.interpolate(conv(F.adaptive_avg_pool2d(x, size)), size=x.shape[2:], mode="bilinear", align_corners=True)
            for size, conv in zip((1, 2, 3, 6), m.convs, strict=True)
        ]
        return m.head(torch.cat([x, *found], 1))

    convs = [nn.Conv2d(4, 2, 1) for _ in range(4)]
    return Net(run, stem=nn.Conv2d(3, 4, 3, 3, 1), convs=convs, head=nn.Conv2d(12, 3, 1))


@family(IMAGE)
def bifpn() -> Any:  # fusion weights kept positive
    def run(m: Any, x: Any) -> Any:
        a = m.a(x)
        b = m.b(a)
        w = F.relu(m.w)
        w = w / (w.sum(0) + 1e-4)
        up = F.interpolate(b, scale_factor=2.0, mode="nearest")
        return m.out(F.silu(w[0] * a + w[1] * up))

    parts = {"a": nn.Conv2d(3, 4, 2, 2), "b": nn.Conv2d(4, 4, 2, 2), "w": nn.Parameter(torch.ones(2))}
    return Net(run, **parts, out=nn.Conv2d(4, 4, 3, padding=1))


@family(IMAGE)
def hourglass() -> Any:
    def run(m: Any, x: Any) -> Any:
        x = m.stem(x)
        low = m.low(F.max_pool2d(x, 2, 2))
        return m.skip(x) + F.interpolate(low, scale_factor=2, mode="bilinear", align_corners=True)

    return Net(run, stem=conv_norm(3, 6, 3, 2), low=conv_norm(6, 6), skip=conv_norm(6, 6, 1))


@family(IMAGE)
def yolo() -> Any:
    anchors = torch.tensor([[1.2, 2.0], [3.1, 2.3]])

    def run(m: Any, x: Any) -> Any:
        y = m.head(m.body(x))
        n, _, h, w = y.shape
        y = y.view(n, 2, 7, h, w).permute(0, 1, 3, 4, 2).contiguous().sigmoid()
        row, column = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        grid = torch.stack((column, row), 2).view(1, 1, h, w, 2).to(y.dtype)
        xy = (y[..., 0:2] * 2 - 0.5 + grid) * 8
        wh = (y[..., 2:4] * 2) ** 2 * m.anchors.view(1, 2, 1, 1, 2)
        return torch.cat((xy, wh, y[..., 4:]), -1).view(n, -1, 7)

    body = nn.Sequential(conv_norm(3, 4, 3, 2, nn.SiLU()), conv_norm(4, 8, 3, 2, nn.SiLU()), conv_norm(8, 8, 3, 2))
    return Net(run, body=body, head=nn.Conv2d(8, 14, 1), anchors=anchors)


@family(IMAGE)
def center_points() -> Any:
    def run(m: Any, x: Any) -> Any:
        y = m.head(m.up(m.body(x))).sigmoid().clamp(1e-4, 1 - 1e-4)
        kept = y * (F.max_pool2d(y, 3, stride=1, padding=1) == y).to(y.dtype)
        return kept.flatten(2).topk(5)[0]

    return Net(run, body=conv_norm(3, 6, 3, 4), up=nn.ConvTranspose2d(6, 4, 4, 2, 1), head=nn.Conv2d(4, 2, 1))


@family(IMAGE)
def single_shot() -> Any:  # boxes and scores, from two scales
    def run(m: Any, x: Any) -> Any:
        boxes, scores = [], []
        for stage, box, score in zip(m.stages, m.boxes, m.scores, strict=True):
            x = stage(x)
            boxes.append(box(x).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4))
            scores.append(score(x).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 3))
        b = torch.cat(boxes, 1)
        return torch.cat([b[..., :2] * 0.1, torch.exp(b[..., 2:] * 0.2)], -1), torch.cat(scores, 1).softmax(-1)

    parts = {"stages": [conv_norm(3, 6, 3, 4), conv_norm(6, 8, 3, 2)]}
    return Net(run, **parts, boxes=[nn.Conv2d(c, 8, 1) for c in (6, 8)], scores=[nn.Conv2d(c, 6, 1) for c in (6, 8)])
