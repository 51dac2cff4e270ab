"""Where layers and modules differ from PyTorch on purpose: docs/differences.md says it, and here each is seen."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import minorm as mn

torch = pytest.importorskip("torch")

PAGE = Path(__file__).parents[2] / "docs" / "differences.md"
DIFFERENCES: dict[str, tuple[str, Callable[[], None]]] = {}


def differs(name: str, text: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def keep(check: Callable[[], None]) -> Callable[[], None]:
        DIFFERENCES[name] = text, check
        return check

    return keep


@differs(
    "load_state_dict",
    "a state that does not fit raises a ValueError, and nothing is loaded; PyTorch raises a RuntimeError after it "
    "loaded the keys that fit",
)
def state() -> None:
    layer, theirs = mn.nn.Linear(2, 3), torch.nn.Linear(2, 3)
    before = layer.weight.tolist()
    with pytest.raises(ValueError, match="nothing was loaded"):
        layer.load_state_dict({"weight": mn.ones(3, 2)})
    with pytest.raises(RuntimeError, match="Missing key"):
        theirs.load_state_dict({"weight": torch.ones(3, 2)})
    assert layer.weight.tolist() == before
    assert theirs.weight.tolist() == [[1.0, 1.0]] * 3


@differs(
    "Lazy layers",
    "have no parameters and no state before the first input; in PyTorch they have uninitialized parameters and can "
    "load a state",
)
def lazy() -> None:
    layer, theirs = mn.nn.LazyLinear(3), torch.nn.LazyLinear(3)
    assert (list(layer.state_dict()), list(theirs.state_dict())) == ([], ["weight", "bias"])
    with pytest.raises(ValueError, match="unexpected keys: weight, bias"):
        layer.load_state_dict(mn.nn.Linear(2, 3).state_dict())
    theirs.load_state_dict(torch.nn.Linear(2, 3).state_dict())


@differs(
    "proj_size of LSTM",
    "a value other than 0 raises NotImplementedError, because ONNX's LSTM has no proj_size; add a Linear after the "
    "LSTM",
)
def projection() -> None:
    with pytest.raises(NotImplementedError, match="LSTM: proj_size is 2"):
        mn.nn.LSTM(3, 4, proj_size=2)


@differs(
    "targets of kl_div and poisson_nll_loss",
    "at a target of 0, log(target) has no slope and adds 0 to the target's gradient; PyTorch's gradient is NaN there",
)
def targets() -> None:
    for name, options in (("kl_div", {}), ("poisson_nll_loss", {"full": True})):
        found = []
        for library, functions in ((mn, mn.functional), (torch, torch.nn.functional)):
            target = library.tensor([0.0, 0.5], requires_grad=True)
            getattr(functions, name)(library.tensor([0.1, 0.2]), target, reduction="sum", **options).backward()
            found.append(target.grad.tolist())
        assert found[0][0] == pytest.approx(-0.1)
        assert np.isnan(found[1][0])
        assert found[0][1] == pytest.approx(found[1][1])


@differs(
    "16-bit floats",
    "functions made of several steps (mish, selu) round after each step; PyTorch's kernels round once, so the last "
    "digit may differ",
)
def rounding() -> None:
    numbers = np.random.default_rng(0).standard_normal(2000).astype(np.float32)
    for name in ("mish", "selu", "gelu", "softmax"):
        given = (0,) if name == "softmax" else ()
        mine = getattr(mn.functional, name)(mn.tensor(numbers).to(mn.bfloat16), *given).float().array
        theirs = getattr(torch.nn.functional, name)(torch.tensor(numbers).bfloat16(), *given).float().numpy()
        np.testing.assert_allclose(mine, theirs, rtol=2**-6, atol=2**-7)
        assert (mine == theirs).all() == (name in ("gelu", "softmax"))


@differs(
    "nn.CrossMapLRN2d",
    "computes the same as LocalResponseNorm. In PyTorch the first channel never leaves the window, because PyTorch's "
    "code counts channels from 0, but was taken from Torch's code, which counts from 1",
)
def across_channels() -> None:  # closer: tests/nn/norm/test_response.py
    x = np.ones((1, 4, 1, 1))
    mine = mn.nn.CrossMapLRN2d(1, 1.0)(mn.tensor(x)).array.ravel()
    assert np.ptp(mine) == 0
    assert np.ptp(torch.nn.CrossMapLRN2d(1, 1.0)(torch.tensor(x)).numpy()) > 0.1


@differs(
    "quantization.FakeQuantize",
    "divides by the scale, as ONNX does; PyTorch multiplies by its reciprocal. Its observer works only in training; "
    "PyTorch's observer works until you disable it",
)
def fake_quantize() -> None:
    mine, theirs = mn.quantization.FakeQuantize(), torch.ao.quantization.FakeQuantize()
    x = [-1.0, 0.5, 1.0]
    mine.eval()(mn.tensor(x))
    theirs.eval()(torch.tensor(x))
    assert mine.scale.item() == 1
    assert theirs.scale.item() == pytest.approx(2 / 255)
    mine.train()(mn.tensor(x))
    assert mine.scale.item() == pytest.approx(2 / 255)
    numbers = np.random.default_rng(0).uniform(-1, 1, 200_000).astype(np.float32)
    ours = mn.functional.fake_quantize_per_tensor_affine(mn.tensor(numbers), 0.1, 0, -128, 127).array
    other = torch.fake_quantize_per_tensor_affine(torch.tensor(numbers), 0.1, 0, -128, 127).numpy()
    scale = np.float32(0.1)
    np.testing.assert_array_equal(ours, np.rint(numbers / scale) * scale)
    np.testing.assert_array_equal(other, np.rint(numbers * (np.float32(1) / scale)) * scale)


@differs("eps below 0", "every normalization raises an error; PyTorch gives NaN if the variance is smaller than -eps")
def negative_eps() -> None:
    with pytest.raises(ValueError, match=r"layer_norm: eps=-1\.0"):
        mn.functional.layer_norm(mn.ones(2, 3), (3,), eps=-1.0)
    assert torch.nn.functional.layer_norm(torch.ones(2, 3), (3,), eps=-1.0).isnan().all()


@differs(
    "shapes that do not fit",
    "raise a ValueError that names the operation and both shapes; PyTorch raises a RuntimeError",
)
def shapes() -> None:
    with pytest.raises(ValueError, match=r"add: shapes \(2,\) and \(3,\) do not broadcast"):
        mn.ones(2) + mn.ones(3)
    with pytest.raises(RuntimeError, match="must match"):
        torch.ones(2) + torch.ones(3)


@differs(
    "autocast",
    "has one policy for both devices, close to PyTorch's policy for CUDA: sums, softmax and losses are float32 on the "
    "CPU too; normalizations keep x's type, because they compute in float32 internally",
)
def casting() -> None:
    with mn.autocast("cpu"), torch.autocast("cpu"):
        mine, theirs = mn.ones(2, 3, dtype=mn.bfloat16), torch.ones(2, 3, dtype=torch.bfloat16)
        assert mine.softmax(1).dtype == mine.sum().dtype == mn.float32
        assert theirs.softmax(1).dtype == theirs.sum().dtype == torch.bfloat16
        assert mn.functional.layer_norm(mine, (3,)).dtype == mn.bfloat16


@differs("forward(input=x)", "Linear and many other layers call their input x; pass it by position")
def by_position() -> None:
    with pytest.raises(TypeError, match="input"):
        mn.nn.Linear(2, 3)(input=mn.ones(1, 2))


@differs(
    "a graph that was freed",
    "raises an error in a second backward pass, even if none of its operations kept arrays for backward. A graph with "
    "a freed part also raises an error, even if this part does not lead to the inputs whose gradients you ask for. "
    "PyTorch computes the gradients in both cases",
)
def freed_graphs() -> None:
    for library in (mn, torch):
        x, w = (library.tensor([1.0], requires_grad=True) for _ in range(2))
        y, part = x + 2, w.exp()
        y.backward()
        part.backward()
        for end in (y, (part * x).sum()):
            if library is torch:
                torch.autograd.grad(end, x)
            else:
                with pytest.raises(RuntimeError, match="was freed"):
                    mn.autograd.grad(end, x)


@differs("autograd.grad(is_grads_batched=True)", "does not exist; call the function once for each row")
def batched_gradients() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    (rows,) = torch.autograd.grad(x * x, x, torch.eye(2), is_grads_batched=True)
    y = mn.tensor([1.0, 2.0], requires_grad=True)
    found = [mn.autograd.grad(y * y, y, row)[0].tolist() for row in mn.eye(2)]
    assert found == rows.tolist()
    with pytest.raises(TypeError, match="is_grads_batched"):
        mn.autograd.grad(y * y, y, mn.eye(2), is_grads_batched=True)


@differs("Tensor.unfold", "returns a copy, so writing into it does not change x; PyTorch returns a view")
def windows() -> None:
    for library, reached in ((mn, False), (torch, True)):
        x = library.zeros(4)
        x.unfold(0, 2, 2).add_(1)
        assert bool(x.any()) is reached


@pytest.mark.parametrize("name", DIFFERENCES)
def test_the_difference_is_there(name: str) -> None:
    DIFFERENCES[name][1]()


def test_the_page_lists_them() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Layers and modules\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `?([^|`]+)`? \| (.+) \|$", section, flags=re.MULTILINE)
    assert rows[1:] == [(name, text) for name, (text, _) in DIFFERENCES.items()]
