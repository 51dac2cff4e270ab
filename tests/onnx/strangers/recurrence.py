"""Networks of sequences: recurrent, and convolutional in time."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tests.onnx.strangers.network import Net, family

TOKENS = {"tokens": ("n", "t")}
STEPS = ("n", "t", 8)


@family(TOKENS, {"tokens": 11})
def lstm_words() -> Any:
    def run(m: Any, tokens: Any) -> Any:
        return m.head(m.lstm(m.words(tokens))[0])

    return Net(run, words=nn.Embedding(11, 5), lstm=nn.LSTM(5, 6, 2, batch_first=True), head=nn.Linear(6, 11))


@family(STEPS)
def gru_both_ways() -> Any:
    def run(m: Any, x: Any) -> Any:
        y, h = m.gru(x)
        return m.head(torch.cat([h[-2], h[-1]], 1)), y

    return Net(run, gru=nn.GRU(8, 4, batch_first=True, bidirectional=True), head=nn.Linear(8, 3))


@family(STEPS)
def elman() -> Any:
    return Net(
        lambda m, x: m.head(m.rnn(x)[0][:, -1]), rnn=nn.RNN(8, 5, 1, "relu", batch_first=True), head=nn.Linear(5, 2)
    )


@family(("n", 1, 16, "w"))
def text_lines() -> Any:  # a convolutional reader of lines
    def run(m: Any, x: Any) -> Any:
        x = F.max_pool2d(F.relu(m.norm(m.conv(x))), (2, 2))
        x = x.permute(3, 0, 1, 2).flatten(2)
        return F.log_softmax(m.head(m.lstm(x)[0]), 2)

    parts = {"conv": nn.Conv2d(1, 4, 3, 1, 1), "norm": nn.BatchNorm2d(4), "lstm": nn.LSTM(32, 5, bidirectional=True)}
    return Net(run, **parts, head=nn.Linear(10, 7))


@family({"x": ("n", "t", 6), "h0": (1, "n", 4), "c0": (1, "n", 4)})
def stateful() -> Any:
    def run(m: Any, x: Any, h0: Any, c0: Any) -> Any:
        y, (h, c) = m.lstm(x, (h0, c0))
        return m.head(y), h, c

    return Net(run, lstm=nn.LSTM(6, 4, batch_first=True), head=nn.Linear(4, 3))


@family(("n", 4, 6))
def cells() -> Any:  # steps written out
    def run(m: Any, x: Any) -> Any:
        h = x.new_zeros(x.shape[0], 5)
        for i in range(4):
            h = m.cell(x[:, i], h)
        return m.head(h)

    return Net(run, cell=nn.GRUCell(6, 5), head=nn.Linear(5, 2))


@family(("n", 3, 2, "h", "w"), h=10, w=10)
def convolutional_lstm() -> Any:
    def run(m: Any, x: Any) -> Any:
        h = c = torch.zeros_like(x[:, 0, :1]).expand(-1, 3, -1, -1)
        for step in range(3):
            i, f, o, g = m.gates(torch.cat([x[:, step], h], 1)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return h

    return Net(run, gates=nn.Conv2d(5, 12, 3, 1, 1))


@family(("n", 3, "t"), t=24)
def wavenet() -> Any:
    def run(m: Any, x: Any) -> Any:
        x, total = m.enter(x), 0
        for i, (filt, gate, out) in enumerate(zip(m.filters, m.gates, m.outs, strict=True)):
            y = F.pad(x, (2**i, 0))
            y = torch.tanh(filt(y)) * torch.sigmoid(gate(y))
            x, total = x + out(y), total + y
        return m.leave(F.relu(total))

    def convs() -> Any:
        return [nn.Conv1d(6, 6, 2, dilation=2**i) for i in range(3)]

    outs = [nn.Conv1d(6, 6, 1) for _ in range(3)]
    return Net(run, enter=nn.Conv1d(3, 6, 1), filters=convs(), gates=convs(), outs=outs, leave=nn.Conv1d(6, 3, 1))


@family(("n", 8, "t"), t=16)
def conformer() -> Any:
    def run(m: Any, x: Any) -> Any:
        y = F.glu(m.one(m.norm(x.transpose(1, 2)).transpose(1, 2)), 1)
        return x + m.three(F.silu(m.bn(m.two(y))))

    parts = {"norm": nn.LayerNorm(8), "one": nn.Conv1d(8, 16, 1), "two": nn.Conv1d(8, 8, 5, padding=2, groups=8)}
    return Net(run, **parts, bn=nn.BatchNorm1d(8), three=nn.Conv1d(8, 8, 1))


@family(("n", 4, "t"), t=20)
def listening() -> Any:  # Whisper: strided convolutions, sines, attention
    places = torch.arange(32)[:, None] * torch.exp(-math.log(1e4) * torch.arange(4) / 3)
    table = torch.cat([places.sin(), places.cos()], 1)

    def run(m: Any, x: Any) -> Any:
        x = F.gelu(m.two(F.gelu(m.one(x)))).permute(0, 2, 1)
        x = x + m.places[: x.shape[1]]
        y = m.norm(x)
        q, k, v = m.q(y), m.k(y), m.v(y)
        n, t, c = q.shape
        scale = (c // 2) ** -0.25
        q = q.view(n, t, 2, -1).permute(0, 2, 1, 3) * scale
        k = k.view(n, t, 2, -1).permute(0, 2, 3, 1) * scale
        w = F.softmax(q @ k, -1) @ v.view(n, t, 2, -1).permute(0, 2, 1, 3)
        return x + m.out(w.permute(0, 2, 1, 3).flatten(2))

    parts = {"one": nn.Conv1d(4, 8, 3, padding=1), "two": nn.Conv1d(8, 8, 3, 2, 1), "norm": nn.LayerNorm(8)}
    heads = {"q": nn.Linear(8, 8), "k": nn.Linear(8, 8, bias=False), "v": nn.Linear(8, 8), "out": nn.Linear(8, 8)}
    return Net(run, **parts, places=table, **heads)
