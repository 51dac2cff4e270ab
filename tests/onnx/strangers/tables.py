"""Networks of points, graphs, tables and numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tests.onnx.strangers.network import Net, family, weight

TOKENS = {"tokens": ("n", "t")}
STEPS = ("n", "t", 8)


@family(("n", 3, "t"), t=16)
def point_cloud() -> Any:
    def run(m: Any, x: Any) -> Any:
        t = (m.tnet(x).max(2)[0] @ m.t).view(-1, 3, 3) + torch.eye(3).to(x.dtype)
        x = torch.bmm(x.transpose(2, 1), t).transpose(2, 1)
        x = m.norm2(m.two(F.relu(m.norm1(m.one(x)))))
        return F.log_softmax(m.head(torch.max(x, 2)[0]), -1)

    parts = {"tnet": nn.Conv1d(3, 4, 1), "t": weight(4, 9), "one": nn.Conv1d(3, 6, 1), "norm1": nn.BatchNorm1d(6)}
    return Net(run, **parts, two=nn.Conv1d(6, 8, 1), norm2=nn.BatchNorm1d(8), head=nn.Linear(8, 4))


@family({"x": ("n", 5), "adjacency": ("n", "n")})
def graph_convolution() -> Any:
    def run(m: Any, x: Any, adjacency: Any) -> Any:
        a = torch.sigmoid(adjacency)
        a = a / a.sum(1, keepdim=True)
        return F.log_softmax(a @ m.two(F.relu(a @ m.one(x))), 1)

    return Net(run, one=nn.Linear(5, 6, bias=False), two=nn.Linear(6, 3))


@family({"x": (7, 5), "edges": (2, "t")}, {"edges": 7})
def message_passing() -> Any:
    def run(m: Any, x: Any, edges: Any) -> Any:
        y = F.leaky_relu(m.message(torch.cat([x[edges[0]], x[edges[1]]], 1)), 0.2)
        total = torch.zeros(7, 4, dtype=x.dtype).scatter_add(0, edges[1][:, None].expand(-1, 4), y)
        return m.update(torch.cat([x, total], 1))

    return Net(run, message=nn.Linear(10, 4), update=nn.Linear(9, 3))


@family({"numbers": ("n", 4), "kinds": ("n", 3)}, {"kinds": 5})
def click_rates() -> Any:  # tables, crossed
    def run(m: Any, numbers: Any, kinds: Any) -> Any:
        found = [table(kinds[:, i]) for i, table in enumerate(m.tables)]
        x0 = x = torch.cat([m.bn(numbers), *found], 1)
        for w, b in zip(m.w, m.b, strict=True):
            x = x0 * (x @ w).unsqueeze(1) + b + x
        pairs = torch.stack(found, 1)
        fm = 0.5 * (pairs.sum(1) ** 2 - (pairs**2).sum(1)).sum(1, keepdim=True)
        return torch.sigmoid(m.head(x) + fm)

    tables = [nn.Embedding(5, 3) for _ in range(3)]
    crosses = {k: nn.ParameterList([weight(13) for _ in range(2)]) for k in ("w", "b")}
    return Net(run, tables=tables, bn=nn.BatchNorm1d(4), **crosses, head=nn.Linear(13, 1))


@family({"a": ("n", 6), "b": ("n", 6)})
def twins() -> Any:
    def run(m: Any, a: Any, b: Any) -> Any:
        a, b = m.body(a), m.body(b)
        return F.cosine_similarity(a, b), (a - b).abs() @ m.w, F.pairwise_distance(a, b)

    return Net(run, body=nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)), w=weight(4, 1))


@family(("n", 6))
def experts() -> Any:
    def run(m: Any, x: Any) -> Any:
        gate = F.softmax(m.gate(x), -1)
        top, which = gate.topk(2, -1)
        kept = torch.zeros_like(gate).scatter(1, which, top / top.sum(-1, keepdim=True))
        return torch.stack([e(x) for e in m.experts], 1).mul(kept.unsqueeze(-1)).sum(1)

    return Net(run, gate=nn.Linear(6, 4), experts=[nn.Linear(6, 5) for _ in range(4)])


@family(("n", 6))
def highway() -> Any:
    def run(m: Any, x: Any) -> Any:
        for h, t in zip(m.h, m.t, strict=True):
            g = torch.sigmoid(t(x))
            x = g * F.relu(h(x)) + (1 - g) * x
        return torch.maximum(m.one(x), m.two(x)).logsumexp(1)

    h, t = [nn.Linear(6, 6) for _ in range(2)], [nn.Linear(6, 6) for _ in range(2)]
    return Net(run, h=h, t=t, one=nn.Linear(6, 3), two=nn.Linear(6, 3))


@family(("n", 3))
def radiance() -> Any:  # NeRF and SIREN: sines of places
    def run(m: Any, x: Any) -> Any:
        y = torch.cat([x] + [f(x * 2.0**i) for i in range(3) for f in (torch.sin, torch.cos)], -1)
        y = torch.sin(30.0 * m.one(y))
        y = F.relu(m.two(torch.cat([y, x], -1)))
        return torch.cat([m.rgb(y).sigmoid(), F.softplus(m.sigma(y), beta=2.0, threshold=8.0)], -1)

    return Net(run, one=nn.Linear(21, 8), two=nn.Linear(11, 8), rgb=nn.Linear(8, 3), sigma=nn.Linear(8, 1))


@family(("n", 12, 4))
def capsules() -> Any:
    def run(m: Any, x: Any) -> Any:
        u = torch.matmul(m.w, x[:, None, :, :, None]).squeeze(-1)
        b = torch.zeros(x.shape[0], 3, 12, 1).to(x.dtype)
        for _ in range(2):
            s = (b.softmax(1) * u).sum(2, keepdim=True)
            norm = (s**2).sum(-1, keepdim=True)
            v = norm / (1 + norm) * s / torch.sqrt(norm + 1e-8)
            b = b + (u * v).sum(-1, keepdim=True)
        return v.squeeze(2)

    return Net(run, w=weight(3, 12, 5, 4))


@family(("n", 8))
def autoencoder() -> Any:
    def run(m: Any, x: Any) -> Any:
        y = m.enc(x)
        mean, log_var = y.chunk(2, 1)
        kl = -0.5 * (1 + log_var - mean**2 - log_var.exp()).sum(1)
        return m.dec(mean), kl

    return Net(
        run,
        enc=nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4)),
        dec=nn.Sequential(nn.Linear(2, 8), nn.Sigmoid()),
    )


@family(("n", 10))
def tabular() -> Any:
    norm = [
        nn.BatchNorm1d(10),
        nn.Linear(10, 8, bias=False),
        nn.BatchNorm1d(8, momentum=0.3),
        nn.GELU(),
        nn.Dropout(0.0),
    ]
    return nn.Sequential(*norm, nn.Linear(8, 6), nn.LayerNorm(6), nn.PReLU(), nn.Linear(6, 1))


@family(("n", 2, "t"), t=16)
def forecasting() -> Any:  # trend and season, each with a linear map
    def run(m: Any, x: Any) -> Any:
        ends = torch.cat([x[..., :1].repeat(1, 1, 2), x, x[..., -1:].repeat(1, 1, 2)], -1)
        trend = F.avg_pool1d(ends, 5, 1)
        return m.season(F.adaptive_avg_pool1d(x - trend, 8)) + m.trend(trend[..., -8:])

    return Net(run, season=nn.Linear(8, 4), trend=nn.Linear(8, 4))


@family(("n", 4, 6))
def spectral() -> Any:
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(6, 5))
    return nn.Sequential(layer, nn.Softsign(), nn.Linear(5, 4), nn.LogSigmoid())


@family({"x": ("n", "t", 8), "lengths": ("n",)}, {"lengths": 5})
def pooled_by_length() -> Any:
    def run(m: Any, x: Any, lengths: Any) -> Any:
        y = torch.tanh(m.one(x))
        mask = (torch.arange(x.shape[1])[None] <= lengths[:, None]).unsqueeze(-1)
        a = m.score(y).masked_fill(~mask, -1e4).softmax(1)
        return m.head((a * x).sum(1)), torch.where(mask, x, -1.0).amax(1)

    return Net(run, one=nn.Linear(8, 6), score=nn.Linear(6, 1), head=nn.Linear(8, 3))
