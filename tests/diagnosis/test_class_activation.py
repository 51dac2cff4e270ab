"""Grad-CAM against the formula written out in PyTorch, on the same weights, and on loaded graphs against the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import models, nn
from minorm.diagnosis import grad_cam

IMAGES = np.random.default_rng(0).standard_normal((3, 3, 32, 32)).astype(np.float32)
LAST = {"lenet": 6, "resnet20": 11, "norms": 10}  # the module whose output has the last convolution's size


def model_of(name: str) -> Any:
    """Build a model in training mode, whose statistics have moved by one batch."""
    mn.manual_seed(0)
    model = models.build(name, 3, 32, 5)
    model(mn.randn(8, 3, 32, 32))
    return model


def by_hand(model: Any, name: str, layer: int, target: Any = None) -> Any:
    """Compute Grad-CAM in PyTorch: Selvaraju et al. 2017, equations 1 and 2."""
    torch = pytest.importorskip("torch")
    twin = models.build(name, 3, 32, 5, torch.nn).eval()
    twin.load_state_dict({key: torch.tensor(value.numpy()) for key, value in model.state_dict().items()}, strict=False)
    maps = twin[: layer + 1](torch.tensor(IMAGES))
    maps.retain_grad()
    scores = twin[layer + 1 :](maps)
    labels = scores.argmax(1) if target is None else torch.as_tensor(target).expand(3)
    scores.gather(1, labels[:, None]).sum().backward()
    heat = torch.relu((maps.grad.mean((2, 3), keepdim=True) * maps).sum(1, keepdim=True))
    heat = torch.nn.functional.interpolate(heat, size=(32, 32), mode="bilinear", align_corners=False)
    largest = heat.amax((1, 2, 3), keepdim=True)
    return torch.where(largest > 0, heat / largest, 0).detach().numpy()[:, 0]


@pytest.mark.parametrize("name", LAST)
@pytest.mark.parametrize("target", [None, 4, [0, 1, 2]])
def test_it_is_the_formula(name: str, target: Any) -> None:
    model = model_of(name)
    found = grad_cam(model, mn.tensor(IMAGES), target=target)
    wanted = by_hand(model, name, LAST[name], target)
    assert wanted.max(axis=(1, 2)).max() == 1
    np.testing.assert_allclose(found.numpy(), wanted, atol=2e-4)


@pytest.mark.parametrize("place", [4, 7])
def test_a_layer_is_named_or_given(place: int) -> None:
    model = model_of("lenet")
    wanted = by_hand(model, "lenet", place)
    for layer in (str(place), model[place]):
        np.testing.assert_allclose(grad_cam(model, mn.tensor(IMAGES), layer).numpy(), wanted, atol=2e-4)


@pytest.mark.parametrize("name", LAST)
def test_a_loaded_graph_gives_what_the_model_gives(name: str) -> None:
    onnx = pytest.importorskip("minorm.onnx")
    model = model_of(name)
    graph = onnx.load(onnx.export(model, mn.tensor(IMAGES)))
    x, wanted = mn.tensor(IMAGES), by_hand(model, name, LAST[name])
    for found in (grad_cam(graph, x), grad_cam(graph, x, str(LAST[name])), grad_cam(nn.Sequential(graph), x)):
        np.testing.assert_allclose(found.numpy(), wanted, atol=2e-4)
    pooling = next(node for node in graph.original.model.graph.node[::-1] if "Pool" in node.op_type)
    np.testing.assert_allclose(grad_cam(graph, x, pooling.input[0]).numpy(), wanted, atol=2e-4)


def test_the_model_is_left_as_it_was() -> None:
    model = model_of("resnet20")
    model[3].freeze()
    for parameter in model[0].parameters():
        parameter.requires_grad = False
    before = {key: value.numpy().copy() for key, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    state = mn.random.get_state()
    grad_cam(model, mn.tensor(IMAGES))
    assert all(np.array_equal(before[key], value.numpy()) for key, value in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(parameter.requires_grad for parameter in model[0].parameters())
    assert mn.random.get_state() == state
    assert not any(module.__dict__.get("_hooks") for module in model.modules())


def test_a_frozen_model_and_other_layouts_of_memory_give_the_same() -> None:
    model = model_of("lenet")
    wanted = grad_cam(model, mn.tensor(IMAGES)).numpy()
    model.freeze()
    last = mn.tensor(np.ascontiguousarray(IMAGES.transpose(0, 2, 3, 1))).permute(0, 3, 1, 2)
    for x in (mn.tensor(IMAGES), last, mn.tensor(IMAGES).to(memory_format=mn.channels_last)):
        with mn.no_grad():
            np.testing.assert_allclose(grad_cam(model, x).numpy(), wanted, atol=1e-5)
    half = grad_cam(model.to(mn.bfloat16), mn.tensor(IMAGES).to(mn.bfloat16))
    assert half.dtype == mn.float32
    assert np.abs(half.numpy() - wanted).mean() < 0.05


class Squeezed(nn.Module):
    """Functions alone, a convolution at one place behind the average, and a layer without a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 3, 3)
        self.second = nn.Conv2d(3, 3, 1)
        self.unused = nn.ReLU()

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        maps = mn.relu(self.first(x))
        self.unused(maps.detach())
        scale = self.second(maps.mean((2, 3), keepdim=True)).sigmoid()
        return (maps * scale).mean((2, 3))


def test_a_convolution_of_averages_is_not_the_last_one() -> None:
    mn.manual_seed(0)
    model, x = Squeezed(), mn.rand(2, 1, 6, 6)
    maps = mn.relu(model.first(x)).detach().requires_grad_()
    scaled = (maps * model.second(maps.mean((2, 3), keepdim=True)).sigmoid()).detach().numpy()
    labels = scaled.mean((2, 3)).argmax(1)  # the score of a class is the mean of its map: a_k is 1 / 16, or 0
    heat = np.stack([scaled[i, label] for i, label in enumerate(labels)])
    found = grad_cam(model, x).numpy()
    wanted = mn.functional.interpolate(mn.tensor(heat)[:, None], size=(6, 6), mode="bilinear").numpy()[:, 0]
    np.testing.assert_allclose(found, wanted / wanted.max(axis=(1, 2), keepdims=True), atol=1e-5)


def test_nothing_that_speaks_for_a_class_is_zeros() -> None:
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1, 2, bias=False))
    with mn.no_grad():
        model[0].weight.fill_(1)
        model[0].bias.fill_(0)
        model[3].weight.copy_(mn.tensor([[-1.0], [1.0]]))
    assert grad_cam(model, mn.ones(1, 1, 4, 4), target=0).numpy().max() == 0
    assert grad_cam(model, mn.ones(1, 1, 4, 4), target=1).numpy().min() == 1


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"model": lambda x: x}, TypeError, "grad_cam: model is a function; expected a Module"),
        ({"images": mn.ones(1, 8, 8)}, ValueError, r"images is float32 of shape \(1, 8, 8\); expected floats N x C"),
        ({"images": mn.ones(1, 1, 8, 8, dtype=mn.uint8)}, ValueError, "images is uint8"),
        ({"images": IMAGES}, ValueError, "grad_cam: images is "),
        (
            {"layer": "no"},
            ValueError,
            "layer='no' is not a layer of the model, or the model does not run it; expected one of 'first', 'second'",
        ),
        ({"layer": nn.ReLU()}, ValueError, "layer=ReLU is not a layer of the model"),
        ({"layer": ""}, ValueError, r"the output of layer='' is \(1, 3\); expected shape N x C x height x width"),
        ({"layer": "unused"}, ValueError, "no score has a gradient for layer='unused'"),
        ({"target": 3}, ValueError, "target=3; expected an int, or 1 of them, from 0 to 2"),
        ({"target": [0, 1]}, ValueError, r"target=\[0, 1\]; expected an int, or 1 of them"),
        ({"target": 0.5}, ValueError, "target=0.5; expected an int"),
        (
            {"model": nn.Linear(8, 2)},
            ValueError,
            r"for 1 image the model's output is \(1, 1, 8, 2\); expected shape N x classes",
        ),
        (
            {"model": nn.Flatten()},
            ValueError,
            "the model has no feature maps N x C x height x width; expected a convolution",
        ),
    ],
)
def test_what_does_not_fit_is_named(arguments: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        grad_cam(**{"model": Squeezed(), "images": mn.ones(1, 1, 8, 8), **arguments})
