"""PyTorch's names go out to ONNX: onnxruntime and minorm itself compute the same from the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn

pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

import minorm.onnx as mo  # noqa: E402

PLACES = mn.tensor(np.random.default_rng(0).integers(0, 4, (3, 4, 5)))

CALLS: dict[str, Callable[[Any], Any]] = {
    "relu": lambda x: x.relu(),
    "sigmoid": lambda x: x.sigmoid(),
    "tanh": lambda x: x.tanh(),
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: mn.log_softmax(x, -1),
    "round": lambda x: x.round(),
    "trunc": lambda x: x.trunc(),
    "sign": lambda x: x.sign(),
    "atan": lambda x: x.atan(),
    "log1p": lambda x: x.abs().log1p(),
    "expm1": lambda x: x.expm1(),
    "rsqrt": lambda x: x.abs().rsqrt(),
    "topk": lambda x: x.topk(2, 1).values,
    "sort": lambda x: x.sort(1).values,
    "argsort": lambda x: x.argsort(1),
    "cumsum": lambda x: x.cumsum(1),
    "prod": lambda x: x.prod(1),
    "norm": lambda x: x.norm(dim=1),
    "norm of 3": lambda x: x.norm(3, dim=1),
    "logsumexp": lambda x: x.logsumexp(1),
    "masked_fill": lambda x: x.masked_fill(x > 0, 0.5),
    "any": lambda x: (x > 1).any(1),
    "all": lambda x: (x > -1).all(1),
    "tril": lambda x: x.tril(),
    "roll": lambda x: x.roll(1, 1),
    "index_select": lambda x: x.index_select(1, mn.tensor([0, 2])),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "movedim": lambda x: x.movedim(0, 2),
    "unflatten": lambda x: x.unflatten(1, (2, 2)),
    "scatter_add": lambda x: x.scatter_add(1, PLACES, x),
    "take_along_dim": lambda x: x.take_along_dim(PLACES, 1),
    "einsum": lambda x: mn.einsum("bij,bkj->bik", x, x),
    "tensordot": lambda x: mn.tensordot(x, x.permute(1, 2, 0), dims=([1, 2], [0, 1])),
    "clamp": lambda x: x.clamp(x * 0 - 0.5, x * 0 + 0.5),
    "exp_": lambda x: (x * 1).exp_(),
    "masked_fill_": lambda x: (x * 1).masked_fill_(x > 0, 0.0),
    "median": lambda x: x.median(1).values,
    "quantile": lambda x: x.quantile(0.3, 1),
    "isfinite": lambda x: x.isfinite(),
    "atan2": lambda x: x.atan2(x.flip(1)),
    "logaddexp": lambda x: x.logaddexp(x.flip(1)),
    "xlogy": lambda x: x.xlogy(x.abs()),
    "logit": lambda x: x.sigmoid().logit(),
    "erfinv": lambda x: x.tanh().erfinv(),
    "unfold": lambda x: x.unfold(2, 3, 2),
    "diff": lambda x: x.diff(n=2, dim=1),
    "nanmean": lambda x: x.log().nanmean(1),
    "diag_embed": lambda x: x.diag_embed(1),
    "searchsorted": lambda x: mn.searchsorted(mn.tensor([-1.0, 0.0, 1.0]), x),
    "isin": lambda x: mn.isin(x.round(), mn.tensor([0.0, 2.0])),
    "scatter_reduce": lambda x: x.scatter_reduce(1, PLACES, x, "amax"),
    "index_put": lambda x: x.index_put((None, mn.tensor([2, 0])), x[:, :2], accumulate=True),
    "masked_scatter": lambda x: x.masked_scatter(x > 0, x.flip(1)),
    "index_add": lambda x: x.index_add(1, mn.tensor([0, 2]), x[:, :2]),
}


class Called(nn.Module):
    """One function as a model."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


@pytest.mark.parametrize("name", CALLS)
def test_a_name_goes_out_and_comes_in(name: str, tmp_path: Path, rng: np.random.Generator) -> None:
    x = mn.tensor(rng.standard_normal((3, 4, 5)).astype(np.float32))
    model, path = Called(CALLS[name]), tmp_path / "model.onnx"
    mo.export(model, x, path)
    session = ort.InferenceSession(str(path))
    got = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
    np.testing.assert_allclose(got, model(x).numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(mo.load(path)(x).numpy(), model(x).numpy(), rtol=1e-5, atol=1e-6)
