"""Networks with attention, or with what stands in for it."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tests.onnx.strangers.network import Net, family, weight

TOKENS = {"tokens": ("n", "t")}
STEPS = ("n", "t", 8)


@family(STEPS)
def encoder() -> Any:
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True)
    return Net(lambda m, x: m.body(x), body=nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))


@family({"src": ("n", "t", 8), "tgt": ("n", 5, 8)})
def translator() -> Any:
    model = nn.Transformer(8, 2, 1, 1, 16, 0.0, batch_first=True)
    return Net(
        lambda m, s, t: m.body(s, t, tgt_mask=m.mask), body=model, mask=torch.triu(torch.full((5, 5), -math.inf), 1)
    )


@family(("n", 3, 32, 32))
def detr() -> Any:
    def run(m: Any, x: Any) -> Any:
        x = m.backbone(x)
        n, _, h, w = x.shape
        place = torch.cat([m.col[:w].unsqueeze(0).repeat(h, 1, 1), m.row[:h].unsqueeze(1).repeat(1, w, 1)], -1)
        x = place.flatten(0, 1).unsqueeze(1) + 0.1 * x.flatten(2).permute(2, 0, 1)
        y = m.transformer(x, m.query.unsqueeze(1).repeat(1, n, 1)).transpose(0, 1)
        return m.classes(y), m.boxes(y).sigmoid()

    body = nn.Sequential(nn.Conv2d(3, 6, 3, 4, 1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 8, 1))
    parts = {"backbone": body, "transformer": nn.Transformer(8, 2, 1, 1, 16, 0.0), "query": weight(5, 8)}
    places = {"row": weight(10, 4), "col": weight(10, 4)}
    return Net(run, **parts, **places, classes=nn.Linear(8, 4), boxes=nn.Linear(8, 4))


@family(("n", 3, 16, 16))
def vit() -> Any:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.attn, self.norm2 = (
                nn.LayerNorm(8),
                nn.MultiheadAttention(8, 2, batch_first=True),
                nn.LayerNorm(8),
            )
            self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

        def forward(self, x: Any) -> Any:
            y = self.norm1(x)
            x = x + self.attn(y, y, y, need_weights=False)[0]
            return x + self.mlp(self.norm2(x))

    def run(m: Any, x: Any) -> Any:
        x = m.conv_proj(x).reshape(x.shape[0], 8, -1).permute(0, 2, 1)
        x = torch.cat([m.class_token.expand(x.shape[0], -1, -1), x], 1) + m.pos_embedding
        return m.head(m.ln(m.layers(x))[:, 0])

    parts = {"conv_proj": nn.Conv2d(3, 8, 4, 4), "class_token": weight(1, 1, 8), "pos_embedding": weight(1, 17, 8)}
    return Net(run, **parts, layers=nn.Sequential(Block(), Block()), ln=nn.LayerNorm(8), head=nn.Linear(8, 3))


@family(("n", 3, "h", "w"), h=16, w=16)
def vit_any_size() -> Any:  # positions resized to the image
    def run(m: Any, x: Any) -> Any:
        x = m.proj(x)
        x = x + F.interpolate(m.pos, size=x.shape[-2:], mode="bicubic", align_corners=False)
        x = x.flatten(2).transpose(1, 2)
        return m.head(m.norm(x + m.mix(x)).mean(1))

    parts = {"proj": nn.Conv2d(3, 8, 4, 4), "pos": weight(1, 8, 3, 3), "mix": nn.Linear(8, 8)}
    return Net(run, **parts, norm=nn.LayerNorm(8), head=nn.Linear(8, 2))


@family(("n", 8, "h", "w"), h=16, w=16)
def segformer() -> Any:  # attention with fewer keys than queries
    def run(m: Any, x: Any) -> Any:
        n, c, h, w = x.shape
        tokens = x.flatten(2).transpose(1, 2)
        q = m.q(tokens).reshape(n, -1, 2, 4).permute(0, 2, 1, 3)
        small = m.norm(m.reduce(x).reshape(n, c, -1).permute(0, 2, 1))
        k, v = m.kv(small).reshape(n, -1, 2, 2, 4).permute(2, 0, 3, 1, 4)
        y = ((q @ k.transpose(-2, -1)) * 0.5).softmax(-1) @ v
        tokens = tokens + m.out(y.transpose(1, 2).reshape(n, -1, c))
        return m.depth(tokens.transpose(1, 2).view(n, c, h, w))

    parts = {"q": nn.Linear(8, 8), "kv": nn.Linear(8, 16), "out": nn.Linear(8, 8), "norm": nn.LayerNorm(8)}
    return Net(run, **parts, reduce=nn.Conv2d(8, 8, 4, 4), depth=nn.Conv2d(8, 8, 3, 1, 1, groups=8))


@family(("n", 9, 8))
def mixer() -> Any:
    def run(m: Any, x: Any) -> Any:
        x = x + m.tokens(m.one(x).transpose(1, 2)).transpose(1, 2)
        return x + m.channels(m.two(x))

    def mlp(a: int, b: int) -> Any:
        return nn.Sequential(nn.Linear(a, b), nn.GELU("tanh"), nn.Linear(b, a))

    return Net(run, one=nn.LayerNorm(8), two=nn.LayerNorm(8), tokens=mlp(9, 12), channels=mlp(8, 16))


@family(TOKENS, {"tokens": 13})
def gpt() -> Any:  # causal, the table of words is the head
    def run(m: Any, i: Any) -> Any:
        t = i.shape[1]
        x = m.wte(i) + m.wpe(torch.arange(t))
        q, k, v = m.attn(m.ln1(x)).split(8, 2)
        q, k, v = (a.view(a.shape[0], t, 2, 4).transpose(1, 2) for a in (q, k, v))
        a = (q @ k.transpose(-2, -1)) / math.sqrt(4)
        a = a.masked_fill(m.bias[:, :, :t, :t] == 0, float("-inf")).softmax(-1)
        x = x + m.proj((a @ v).transpose(1, 2).reshape(i.shape[0], t, 8))
        return m.head(m.ln2(x))

    words = nn.Embedding(13, 8)
    head = nn.Linear(8, 13, bias=False)
    head.weight = words.weight
    parts = {"wte": words, "wpe": nn.Embedding(16, 8), "ln1": nn.LayerNorm(8), "attn": nn.Linear(8, 24)}
    return Net(
        run, **parts, proj=nn.Linear(8, 8), ln2=nn.LayerNorm(8), head=head, bias=torch.tril(torch.ones(1, 1, 16, 16))
    )


@family({"tokens": ("n", "t"), "mask": ("n", "t")}, {"tokens": 13, "mask": 2})
def bert() -> Any:
    def run(m: Any, i: Any, mask: Any) -> Any:
        x = m.norm(m.words(i) + m.places(torch.arange(i.shape[1]).unsqueeze(0)) + m.kinds(torch.zeros_like(i)))
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * -10000.0
        q, k, v = (f(x).view(x.shape[0], -1, 2, 4).transpose(1, 2) for f in (m.q, m.k, m.v))
        a = (q @ k.transpose(-1, -2) / math.sqrt(4) + bias).softmax(-1)
        x = m.after(x + m.out((a @ v).transpose(1, 2).flatten(2)))
        return torch.tanh(m.pooler(x[:, 0])), x

    parts = {"words": nn.Embedding(13, 8, padding_idx=0), "places": nn.Embedding(16, 8), "kinds": nn.Embedding(2, 8)}
    heads = {name: nn.Linear(8, 8) for name in ("q", "k", "v", "out", "pooler")}
    return Net(run, **parts, **heads, norm=nn.LayerNorm(8, 1e-12), after=nn.LayerNorm(8, 1e-12))


class RMSNorm(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n) + 0.1 * torch.randn(n))

    def forward(self, x: Any) -> Any:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


@family(TOKENS, {"tokens": 13})
def t5() -> Any:  # buckets of distances, RMSNorm, gated
    def run(m: Any, i: Any) -> Any:
        t = i.shape[1]
        x = m.words(i)
        apart = torch.arange(t)[None] - torch.arange(t)[:, None]
        far = 4 + (torch.log(apart.abs().clamp(min=1).to(x.dtype) / 4) / math.log(4) * 4).long()
        bucket = torch.where(apart.abs() < 4, apart.abs(), far.clamp(max=7)) + (apart > 0).long() * 8
        bias = m.table(bucket).permute(2, 0, 1).unsqueeze(0)
        y = m.norm1(x)
        q, k, v = (f(y).view(x.shape[0], t, 2, 4).transpose(1, 2) for f in (m.q, m.k, m.v))
        x = x + m.out(((q @ k.transpose(2, 3) + bias).softmax(-1) @ v).transpose(1, 2).reshape(x.shape))
        y = m.norm2(x)
        return x + m.wo(F.gelu(m.wi0(y), approximate="tanh") * m.wi1(y))

    parts = {name: nn.Linear(8, 8, bias=False) for name in ("q", "k", "v", "out", "wi0", "wi1", "wo")}
    return Net(run, words=nn.Embedding(13, 8), table=nn.Embedding(16, 2), norm1=RMSNorm(8), norm2=RMSNorm(8), **parts)


@family(STEPS)
def llama() -> Any:  # turned positions, shared keys, gated
    def run(m: Any, x: Any) -> Any:
        n, t, _ = x.shape
        angle = torch.outer(torch.arange(t, dtype=torch.float32).to(x.dtype), m.inv_freq)
        cos, sin = torch.cat([angle, angle], -1).cos(), torch.cat([angle, angle], -1).sin()

        def turn(a: Any) -> Any:
            return a * cos + torch.cat([-a[..., 2:], a[..., :2]], -1) * sin

        y = m.norm1(x)
        q = turn(m.q(y).view(n, t, 2, 4).transpose(1, 2))
        k, v = turn(m.k(y).view(n, t, 1, 4).transpose(1, 2)), m.v(y).view(n, t, 1, 4).transpose(1, 2)
        k, v = (a[:, :, None].expand(n, 1, 2, t, 4).reshape(n, 2, t, 4) for a in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + m.o(y.transpose(1, 2).reshape(n, t, 8))
        y = m.norm2(x)
        return x + m.down(F.silu(m.gate(y)) * m.up(y))

    parts = {"q": nn.Linear(8, 8, bias=False), "k": nn.Linear(8, 4, bias=False), "v": nn.Linear(8, 4, bias=False)}
    parts |= {name: nn.Linear(8, 8, bias=False) for name in ("o", "gate", "up", "down")}
    frequency = 1.0 / (10000 ** (torch.arange(0, 4, 2) / 4))
    return Net(run, norm1=RMSNorm(8), norm2=RMSNorm(8), inv_freq=frequency, **parts)


@family(STEPS)
def gated() -> Any:  # PyTorch's RMSNorm, which the newer exporter alone writes
    def run(m: Any, x: Any) -> Any:
        y = m.norm(x)
        return m.last(x + m.down(F.silu(m.gate(y)) * m.up(y)))

    parts = {"gate": nn.Linear(8, 12), "up": nn.Linear(8, 12), "down": nn.Linear(12, 8)}
    return Net(run, norm=nn.RMSNorm(8, eps=1e-5), **parts, last=nn.RMSNorm(8))


@family({"x": ("n", 3, 16, 16), "tokens": ("n", 6)}, {"tokens": 9})
def image_and_text() -> Any:  # CLIP: two towers and a learned temperature
    def run(m: Any, x: Any, tokens: Any) -> Any:
        a = m.image(x).mean((2, 3))
        b = m.words(tokens).mean(1) @ m.projection
        a, b = a / a.norm(dim=-1, keepdim=True), b / b.norm(dim=-1, keepdim=True)
        return m.logit_scale.exp() * a @ b.t()

    parts = {"image": nn.Conv2d(3, 8, 4, 4), "words": nn.Embedding(9, 6), "projection": weight(6, 8)}
    return Net(run, **parts, logit_scale=nn.Parameter(torch.tensor(math.log(1 / 0.07))))


@family(STEPS)
def perceiver() -> Any:
    def run(m: Any, x: Any) -> Any:
        z = m.latents.unsqueeze(0).expand(x.shape[0], -1, -1)
        z = z + m.cross(z, x, x, need_weights=False)[0]
        return m.head(m.norm(z)).mean(1)

    parts = {"latents": weight(4, 8), "cross": nn.MultiheadAttention(8, 2, batch_first=True), "norm": nn.LayerNorm(8)}
    return Net(run, **parts, head=nn.Linear(8, 3))


@family(STEPS)
def linear_attention() -> Any:
    def run(m: Any, x: Any) -> Any:
        q, k, v = m.qkv(x).chunk(3, -1)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        kv = torch.einsum("ntd,nte->nde", k, v)
        z = 1 / (torch.einsum("ntd,nd->nt", q, k.sum(1)) + 1e-6)
        return m.out(torch.einsum("ntd,nde,nt->nte", q, kv, z))

    return Net(run, qkv=nn.Linear(8, 24), out=nn.Linear(8, 8))


@family(("n", 5, 6))
def selective_scan() -> Any:  # a state space, its steps written out
    def run(m: Any, x: Any) -> Any:
        delta = F.softplus(m.delta(x) + m.bias)
        a = -torch.exp(m.a_log)
        b, c = m.bc(x).chunk(2, -1)
        h, found = x.new_zeros(x.shape[0], 6, 3), []
        for i in range(5):
            d = delta[:, i, :, None]
            h = torch.exp(d * a) * h + d * b[:, i, None] * x[:, i, :, None]
            found.append((h * c[:, i, None]).sum(-1))
        return torch.stack(found, 1) + x * m.d

    return Net(
        run,
        delta=nn.Linear(6, 6),
        bias=weight(6),
        a_log=weight(6, 3),
        bc=nn.Linear(6, 6),
        d=nn.Parameter(torch.ones(6)),
    )


@family(STEPS)
def time_mixing() -> Any:  # RWKV: mixed with the step before
    def run(m: Any, x: Any) -> Any:
        before = F.pad(x, (0, 0, 1, -1))
        k = m.key(x * m.mix_k + before * (1 - m.mix_k))
        r = torch.sigmoid(m.receptance(x * m.mix_r + before * (1 - m.mix_r)))
        return x + r * m.value(torch.relu(k) ** 2)

    parts = {"key": nn.Linear(8, 12, bias=False), "receptance": nn.Linear(8, 8, bias=False)}
    return Net(run, mix_k=weight(1, 1, 8), mix_r=weight(1, 1, 8), **parts, value=nn.Linear(12, 8, bias=False))
