"""Losses: float64 formulas, finite differences, PyTorch, and inputs that saturate."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minorm as mn
import minorm.functional as F
from minorm.testing import gradcheck

SHAPES = [(4,), (6, 4), (6, 4, 3), (2, 4, 3, 2)]
REDUCTIONS = ["mean", "sum", "none"]


def labels_for(shape, rng, low=0):
    return np.asarray(rng.integers(low, shape[min(1, len(shape) - 1)], shape[:1] + shape[2:] if len(shape) > 1 else ()))


def twin(name, x, target, gradient_of_target, **options):
    """Run ours and PyTorch's, forward and backward, and compare."""
    torch = pytest.importorskip("torch")
    ours, theirs = mn.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    our_target, their_target = mn.tensor(target), torch.tensor(target)
    if gradient_of_target:
        our_target.requires_grad_()
        their_target.requires_grad_()
    elif target.dtype.kind == "i":
        their_target = their_target.long()
    arrays = {k: v for k, v in options.items() if isinstance(v, np.ndarray)}
    y = getattr(F, name)(ours, our_target, **options | {k: mn.tensor(v) for k, v in arrays.items()})
    expected = getattr(torch.nn.functional, name)(
        theirs, their_target, **options | {k: torch.tensor(v) for k, v in arrays.items()}
    )
    assert y.shape == tuple(expected.shape)
    np.testing.assert_allclose(y.array, expected.detach().numpy(), rtol=1e-10, atol=1e-13)
    gradient = np.random.default_rng(1).standard_normal(y.shape)
    y.backward(gradient)
    expected.backward(torch.tensor(gradient))
    np.testing.assert_allclose(ours.grad.array, theirs.grad.numpy(), rtol=1e-10, atol=1e-13)
    if gradient_of_target:
        np.testing.assert_allclose(our_target.grad.array, their_target.grad.numpy(), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_cross_entropy_of_classes(shape, weighted, smoothing, reduction, rng):
    weight = rng.uniform(0.1, 2, 4) if weighted else None
    options = {"weight": weight, "label_smoothing": smoothing, "reduction": reduction}
    x = rng.standard_normal(shape)
    twin("cross_entropy", x, labels_for(shape, rng), False, **options)
    twin("cross_entropy", x, labels_for(shape, rng).astype(np.int32), False, **options)
    if len(shape) > 1:
        labels = labels_for(shape, rng)
        labels.flat[0], labels.flat[-1] = 1, 2
        twin("cross_entropy", x, labels, False, ignore_index=1, **options)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_cross_entropy_of_probabilities(shape, weighted, smoothing, reduction, rng):
    weight = rng.uniform(0.1, 2, 4) if weighted else None
    options = {"weight": weight, "label_smoothing": smoothing, "reduction": reduction}
    twin("cross_entropy", rng.standard_normal(shape), rng.uniform(0, 1, shape), True, **options)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_nll(shape, weighted, reduction, rng):
    options = {"weight": rng.uniform(0.1, 2, 4) if weighted else None, "reduction": reduction}
    twin("nll_loss", rng.standard_normal(shape), labels_for(shape, rng), False, **options)
    if len(shape) > 1:
        labels = labels_for(shape, rng)
        labels.flat[0], labels.flat[-1] = 1, 2
        twin("nll_loss", rng.standard_normal(shape), labels, False, ignore_index=1, **options)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("name", "options"),
    [("mse_loss", {}), ("l1_loss", {}), ("smooth_l1_loss", {"beta": 0.5}), ("smooth_l1_loss", {"beta": 0.0})],
)
def test_losses_of_differences(name, options, reduction, rng):
    twin(name, rng.standard_normal((3, 4)), rng.standard_normal((3, 4)), True, reduction=reduction, **options)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weight", [None, (4,), (3, 1), (3, 4)])
@pytest.mark.parametrize("pos_weight", [None, (4,)])
def test_binary_cross_entropy(weight, pos_weight, reduction, rng):
    options = {
        "weight": None if weight is None else rng.uniform(0.1, 2, weight),
        "pos_weight": None if pos_weight is None else rng.uniform(0.1, 2, pos_weight),
        "reduction": reduction,
    }
    x, target = rng.standard_normal((3, 4)), rng.uniform(0, 1, (3, 4))
    twin("binary_cross_entropy_with_logits", x, target, True, **options)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_gradients_against_finite_differences(reduction, rng):
    x, y, w = rng.standard_normal((5, 4)), rng.standard_normal((5, 4)), mn.tensor(rng.uniform(0.1, 2, 4))
    labels = mn.tensor(np.array([0, 3, -100, 1, 1]))
    chance = rng.uniform(0.1, 0.9, (5, 4))
    for f, inputs in [
        (lambda a: F.cross_entropy(a, labels, reduction=reduction, label_smoothing=0.1), (x,)),
        (lambda a: F.cross_entropy(a, labels, w, reduction=reduction, label_smoothing=0.1), (x,)),
        (lambda a, q: F.cross_entropy(a, q, w, reduction=reduction, label_smoothing=0.1), (x, chance)),
        (lambda a: F.nll_loss(a, labels, w, reduction=reduction), (x,)),
        (lambda a, b: F.mse_loss(a, b, reduction=reduction), (x, y)),
        (lambda a, b: F.l1_loss(a, b, reduction=reduction), (x, y)),
        (lambda a, b: F.smooth_l1_loss(a, b, reduction=reduction), (x, y)),
        (lambda a, q: F.binary_cross_entropy_with_logits(a, q, w, reduction=reduction, pos_weight=w), (x, chance)),
    ]:
        gradcheck(f, *inputs)


@given(rows=st.integers(1, 5), classes=st.integers(1, 6), inner=st.lists(st.integers(1, 3), max_size=2))
def test_cross_entropy_is_log_softmax_then_nll(rows, classes, inner):
    rng = np.random.default_rng(rows * 100 + classes)
    shape = (rows, classes, *inner)
    x, labels = mn.tensor(rng.standard_normal(shape) * 5), mn.tensor(labels_for(shape, rng))
    for reduction in REDUCTIONS:
        fused = F.cross_entropy(x, labels, reduction=reduction)
        np.testing.assert_allclose(
            fused.array, F.nll_loss(F.log_softmax(x, 1), labels, reduction=reduction).array, rtol=1e-12, atol=1e-14
        )
        one_hot = (np.arange(classes).reshape(-1, *(1,) * len(inner)) == labels.array[:, None]).astype(np.float64)
        soft = F.cross_entropy(x, mn.tensor(one_hot), reduction=reduction)
        np.testing.assert_allclose(fused.array, soft.array, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.filterwarnings("error")
def test_saturated_logits(dtype):
    x = mn.tensor(np.array([[1e30, 0, -1e30], [-1e30, 1e30, 0]], dtype), requires_grad=True)
    loss = F.cross_entropy(x, mn.tensor([0, 1]))
    loss.backward()
    assert loss.item() == 0
    np.testing.assert_array_equal(x.grad.array, 0)

    z = mn.tensor(np.array([-1000, 1000, -1000, 1000], dtype), requires_grad=True)
    loss = F.binary_cross_entropy_with_logits(z, mn.tensor(np.array([0, 1, 1, 0], dtype)), reduction="none")
    np.testing.assert_array_equal(loss.array, [0, 0, 1000, 1000])
    loss.sum().backward()
    np.testing.assert_array_equal(z.grad.array, [0, 0, -1, 1])


def test_a_masked_class_that_is_not_the_target_costs_nothing():
    x = mn.tensor([[1.0, -np.inf, 1.0]], requires_grad=True)
    for weight in (None, mn.tensor([1.0, 1.0, 1.0])):
        x.grad = None
        loss = F.cross_entropy(x, mn.tensor([0]), weight)
        loss.backward()
        assert loss.item() == pytest.approx(np.log(2))
        np.testing.assert_allclose(x.grad.array, [[-0.5, 0, 0.5]], atol=1e-7)


@pytest.mark.parametrize("weight", [None, mn.tensor([1.0, 2.0, 3.0])])
def test_all_ignored_is_nan_as_in_pytorch_with_zero_gradients(weight):
    x = mn.tensor(np.ones((2, 3), np.float32), requires_grad=True)
    ignored = mn.tensor(np.array([-100, -100]))
    for loss in (F.cross_entropy(x, ignored, weight), F.nll_loss(x, ignored, weight)):
        assert np.isnan(loss.item())
    F.nll_loss(x, ignored, weight).backward()
    np.testing.assert_array_equal(x.grad.array, 0)
    assert F.cross_entropy(x, ignored, weight, reduction="sum").item() == 0


def test_an_empty_batch():
    x = mn.tensor(np.ones((0, 3), np.float32), requires_grad=True)
    labels = mn.tensor(np.zeros(0, np.int64))
    assert np.isnan(F.cross_entropy(x, labels).item())
    assert F.cross_entropy(x, labels, reduction="none").shape == (0,)
    loss = F.cross_entropy(x, labels, reduction="sum")
    loss.backward()
    assert loss.item() == 0
    assert x.grad.shape == (0, 3)
    assert np.isnan(F.mse_loss(x.detach(), x.detach()).item())


@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16], ids=str)
@pytest.mark.parametrize(
    "name", ["cross_entropy", "nll_loss", "mse_loss", "l1_loss", "binary_cross_entropy_with_logits"]
)
def test_half_types_are_reduced_in_float32(name, dtype, rng):
    x = mn.tensor((rng.standard_normal((4096, 4)) * 3).astype(dtype), requires_grad=True)
    if name in ("cross_entropy", "nll_loss"):
        target = wide_target = mn.tensor(rng.integers(0, 4, 4096))
    else:
        target = mn.tensor(rng.uniform(0, 1, (4096, 4)).astype(dtype))
        wide_target = target.detach().double()
    wide = mn.tensor(x.array.astype(np.float64), requires_grad=True)
    loss, exact = getattr(F, name)(x, target), getattr(F, name)(wide, wide_target)
    epsilon = 2.0**-11 if dtype == mn.float16 else 2.0**-8
    assert loss.dtype == dtype
    assert abs(loss.item() - exact.item()) <= 1.01 * epsilon * abs(exact.item()) + 1e-6
    loss.backward(np.asarray(2048, dtype))  # as a scaled loss: the gradients stay in the type's range
    exact.backward(np.float64(2048))
    assert x.grad.dtype == dtype
    np.testing.assert_allclose(x.grad.array.astype(np.float64), wide.grad.array, rtol=1.1 * epsilon, atol=1e-4)


def test_mean_over_many_is_exact_to_float32(rng):
    x = (1 + rng.uniform(0, 1, 3_000_000)).astype(np.float32)
    loss = F.mse_loss(mn.tensor(x), mn.tensor(np.zeros_like(x))).item()
    assert loss == pytest.approx(float((x.astype(np.float64) ** 2).mean()), rel=1e-7)


@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss])
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_a_buffer_of_labels_may_be_filled_again(loss, dtype, rng):
    x = mn.tensor(rng.standard_normal((4, 3)), requires_grad=True)
    labels = np.array([2, 0, 1, 1], dtype)
    result = loss(x, mn.from_numpy(labels), reduction="sum")
    labels[...] = np.iinfo(dtype).max
    result.backward()
    e = np.exp(x.numpy())
    softmax = e / e.sum(1, keepdims=True) if loss is F.cross_entropy else 0
    np.testing.assert_allclose(x.grad.numpy(), softmax - np.eye(3)[[2, 0, 1, 1]], rtol=1e-12, atol=1e-15)
