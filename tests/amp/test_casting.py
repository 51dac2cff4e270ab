"""autocast: which operation gets its inputs in which type, beside PyTorch; parameters keep theirs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import models, nn, optim
from minorm.amp import casting


def image() -> mn.Tensor:
    return mn.ones(2, 4, 5, 5)


LOW: dict[str, Callable[[], mn.Tensor]] = {
    "matmul": lambda: mn.ones(2, 3) @ mn.ones(3, 4),
    "bmm": lambda: mn.ones(2, 3, 4).bmm(mn.ones(2, 4, 5)),
    "einsum": lambda: mn.einsum("ij,jk->ik", mn.ones(2, 3), mn.ones(3, 4)),
    "linear": lambda: F.linear(mn.ones(2, 3), mn.ones(4, 3), mn.ones(4)),
    "conv1d": lambda: F.conv1d(mn.ones(2, 3, 5), mn.ones(4, 3, 3)),
    "conv2d": lambda: F.conv2d(image(), mn.ones(3, 4, 3, 3)),
    "conv_transpose2d": lambda: F.conv_transpose2d(image(), mn.ones(4, 3, 3, 3)),
    "scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(*[mn.ones(1, 3, 4)] * 3),
    "LSTM": lambda: nn.LSTM(3, 4)(mn.ones(5, 2, 3))[0],
    "GRU": lambda: nn.GRU(3, 4)(mn.ones(5, 2, 3))[0],
}
HALF = mn.full((2, 3), 0.5, dtype=mn.bfloat16)
FULL: dict[str, Callable[[], mn.Tensor]] = {
    "exp": HALF.exp,
    "log": HALF.log,
    "expm1": HALF.expm1,
    "erfinv": HALF.erfinv,
    "log1p": HALF.log1p,
    "pow": lambda: HALF**2,
    "sum": HALF.sum,
    "prod": HALF.prod,
    "cumsum": lambda: HALF.cumsum(0),
    "logsumexp": lambda: HALF.logsumexp(1),
    "softmax": lambda: F.softmax(HALF, 1),
    "log_softmax": lambda: F.log_softmax(HALF, 1),
    "softplus": lambda: F.softplus(HALF),
    "normalize": lambda: F.normalize(HALF),
    "cross_entropy": lambda: F.cross_entropy(HALF, mn.tensor([0, 1])),
    "nll_loss": lambda: F.nll_loss(HALF, mn.tensor([0, 1])),
    "mse_loss": lambda: F.mse_loss(HALF, mn.ones(2, 3)),
    "l1_loss": lambda: F.l1_loss(HALF, mn.ones(2, 3)),
    "binary_cross_entropy_with_logits": lambda: F.binary_cross_entropy_with_logits(HALF, mn.ones(2, 3)),
}
AS_IT_IS: dict[str, Callable[[], mn.Tensor]] = {
    "relu": lambda: F.relu(HALF),
    "gelu": lambda: F.gelu(HALF),
    "sigmoid": HALF.sigmoid,
    "mean": HALF.mean,
    "max": HALF.max,
    "layer_norm": lambda: F.layer_norm(HALF, (3,), mn.ones(3), mn.zeros(3)),
    "batch_norm": lambda: nn.BatchNorm1d(3)(HALF),
    "max_pool2d": lambda: F.max_pool2d(image().bfloat16(), 2),
    "a + a": lambda: HALF + HALF,
}
WIDEST: dict[str, Callable[[], mn.Tensor]] = {
    "a + b": lambda: HALF + mn.ones(2, 3),
    "a * b": lambda: mn.ones(2, 3) * HALF,
    "cat": lambda: mn.cat([HALF, mn.ones(2, 3)]),
    "where": lambda: mn.where(HALF > 0, HALF, mn.ones(2, 3)),
    "two of 16 bits": lambda: HALF + HALF.half(),
}


@pytest.mark.parametrize("name", LOW)
def test_products_are_in_16_bits(name: str) -> None:
    assert LOW[name]().dtype == mn.float32
    for dtype in (mn.bfloat16, mn.float16):
        with mn.autocast("cpu", dtype):
            assert LOW[name]().dtype == dtype


@pytest.mark.parametrize("name", FULL)
def test_what_leaves_the_range_is_in_float32(name: str) -> None:
    with mn.autocast("cpu"):
        assert FULL[name]().dtype == mn.float32


@pytest.mark.parametrize("name", AS_IT_IS)
def test_everything_else_is_as_it_is(name: str) -> None:
    with mn.autocast("cpu"):
        assert AS_IT_IS[name]().dtype == mn.bfloat16


@pytest.mark.parametrize("name", WIDEST)
def test_of_several_types_the_widest(name: str) -> None:
    with pytest.raises(TypeError, match="one float type"):
        WIDEST[name]()
    with mn.autocast("cpu"):
        assert WIDEST[name]().dtype == mn.float32


def test_the_policy_names_operations_that_are_there() -> None:
    assert not casting.LOWER & casting.FULL
    assert {function.__name__ for function in casting.LOWER} == {
        "MatMul", "Linear", "Convolution", "ConvolutionTranspose", "LSTM", "GRU", "RNN"
    }  # fmt: skip


def test_float64_is_left_alone() -> None:
    with mn.autocast("cpu"):
        assert (mn.ones(2, 3, dtype=mn.float64) @ mn.ones(3, 2, dtype=mn.float64)).dtype == mn.float64


def test_blocks_nest_and_end() -> None:
    assert not mn.is_autocast_enabled("cpu")
    assert (mn.get_autocast_dtype("cpu"), mn.get_autocast_dtype("cuda")) == (mn.bfloat16, mn.float16)
    assert mn.is_autocast_available("cpu")
    assert not mn.is_autocast_available("tpu")
    with mn.autocast("cpu", mn.float16):
        assert mn.is_autocast_enabled("cpu")
        assert not mn.is_autocast_enabled("cuda")
        assert mn.get_autocast_dtype("cpu") == mn.float16
        with mn.autocast("cpu", enabled=False):
            assert LOW["linear"]().dtype == mn.float32
        with mn.autocast("cuda"):
            assert LOW["linear"]().dtype == mn.float16
        with pytest.raises(ZeroDivisionError), mn.autocast("cpu", mn.bfloat16):
            raise ZeroDivisionError
        assert LOW["linear"]().dtype == mn.float16
    with mn.autocast("cuda"):  # the tensors are on the CPU
        assert LOW["linear"]().dtype == mn.float32
    assert LOW["linear"]().dtype == mn.float32


def test_as_a_decorator_and_in_another_thread() -> None:
    @mn.autocast("cpu")
    def product() -> Any:
        return LOW["matmul"]().dtype

    assert product() == mn.bfloat16
    found: list[Any] = []
    with mn.autocast("cpu"):
        thread = threading.Thread(target=lambda: found.append(LOW["matmul"]().dtype))
        thread.start()
        thread.join()
    assert found == [mn.float32]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mn.autocast("tpu"), "autocast: device_type is 'tpu'; expected 'cuda' or 'cpu'"),
        (lambda: mn.autocast("cpu", mn.float32), "autocast: dtype is float32; expected float16 or bfloat16"),
        (lambda: mn.get_autocast_dtype("tpu"), "get_autocast_dtype: device_type is 'tpu'"),
    ],
)
def test_errors_say_what_is_expected(make: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        make()
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("name", ["digits", "norms"])
def test_gradients_are_those_of_float32_up_to_rounding(name: str) -> None:
    channels, size = (1, 8) if name == "digits" else (3, 8)
    mn.manual_seed(0)
    model = models.build(name, channels, size, 10)
    x, y = mn.randn(16, channels, size, size), mn.tensor(np.arange(16) % 10)
    found = {}
    for way in ("float32", "autocast"):
        model.zero_grad()
        with mn.autocast("cpu", enabled=way == "autocast"):
            loss = F.cross_entropy(model(x), y)
        assert loss.dtype == mn.float32
        loss.backward()
        assert all(p.grad.dtype == mn.float32 for p in model.parameters())
        found[way] = np.concatenate([p.grad.numpy().reshape(-1) for p in model.parameters()])
    error = np.linalg.norm(found["autocast"] - found["float32"]) / np.linalg.norm(found["float32"])
    assert 1e-4 < error < 0.15  # a gradient that BatchNorm lets through is a small difference


def test_a_loop_of_pytorch_gives_the_same_losses() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    images, labels = rng.standard_normal((16, 1, 8, 8), np.float32), rng.integers(0, 10, 16)
    mn.manual_seed(0)
    ours = models.build("digits", 1, 8, 10)
    theirs = models.build("digits", 1, 8, 10, torch.nn)
    theirs.load_state_dict({key: torch.from_numpy(value.numpy().copy()) for key, value in ours.state_dict().items()})
    losses = {}
    for library, model, wrap in ((mn, ours, mn.tensor), (torch, theirs, torch.from_numpy)):
        optimizer = library.optim.SGD(model.parameters(), lr=0.02)
        x, y, losses[library] = wrap(images), wrap(labels), []
        for _ in range(5):
            with library.autocast("cpu", dtype=library.bfloat16):
                loss = library.nn.CrossEntropyLoss()(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[library].append(float(loss.item()))
    assert losses[mn][-1] < 0.5 * losses[mn][0]
    np.testing.assert_allclose(losses[mn], losses[torch], rtol=0.03)


def test_what_is_kept_takes_half_of_the_memory() -> None:
    model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))
    x = mn.ones(4, 8, 16, 16)

    def kept(y: mn.Tensor) -> int:
        """Count the bytes of the images that the graph holds."""
        arrays, seen, left = {}, set(), [y.creator]
        while left:
            function = left.pop()
            if id(function) in seen or not hasattr(function, "edges"):
                continue
            seen.add(id(function))
            arrays |= {id(a): a for a in vars(function).values() if isinstance(a, np.ndarray) and a.ndim == 4}
            left += [edge[0] for edge in function.edges or () if edge is not None]
        return sum(a.nbytes for a in arrays.values() if a.shape == (4, 8, 16, 16))

    whole = kept(model(x))
    with mn.autocast("cpu"):
        half = kept(model(x))
    assert half == whole // 2


def test_an_export_writes_the_model_and_not_the_casts(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    model = models.build("digits", 1, 8, 10).eval()
    x = mn.randn(2, 1, 8, 8)
    mn.onnx.export(model, x, tmp_path / "plain.onnx")
    with mn.autocast("cpu"):
        mn.onnx.export(model, x, tmp_path / "inside.onnx")
        assert model(x).dtype == mn.bfloat16
    one, other = (onnx.load(tmp_path / f"{name}.onnx") for name in ("plain", "inside"))
    assert [node.op_type for node in one.graph.node] == [node.op_type for node in other.graph.node]
    assert "Cast" not in {node.op_type for node in other.graph.node}


def test_training_with_it_learns() -> None:
    mn.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
    x = mn.randn(64, 8)
    y = (x.sum(1) > 0).to(mn.int64)
    optimizer, scaler = optim.Adam(model.parameters(), lr=0.01), mn.amp.GradScaler("cpu")
    losses = []
    for _ in range(60):
        with mn.autocast("cpu", mn.float16):
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
