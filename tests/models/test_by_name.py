"""Networks by their names: the keys and sizes that torchvision publishes, files of PyTorch, and images they take."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import minorm as mn
from minorm import models

torch = pytest.importorskip("torch")

from benchmarks import vision  # noqa: E402  after importorskip
from tests.models.networks import images, random_state  # noqa: E402
from tests.models.undrawn import undrawn  # noqa: E402

# From torchvision's documentation, for 1000 classes; vit_tiny has the published size of DeiT-Ti.
PARAMETERS = {
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "mobilenet_v2": 3_504_872,
    "efficientnet_b0": 5_288_548,
    "convnext_tiny": 28_589_128,
    "vit_tiny": 5_717_416,
}
KEYS = {
    "resnet18": {
        "conv1.weight": (64, 3, 7, 7), "bn1.num_batches_tracked": (), "layer1.1.bn2.running_var": (64,),
        "layer2.0.downsample.0.weight": (128, 64, 1, 1), "layer4.1.conv2.weight": (512, 512, 3, 3),
        "fc.weight": (1000, 512), "fc.bias": (1000,),
    },
    "resnet34": {"layer3.5.conv2.weight": (256, 256, 3, 3), "layer4.2.bn2.bias": (512,), "fc.weight": (1000, 512)},
    "resnet50": {
        "layer1.0.conv3.weight": (256, 64, 1, 1), "layer1.0.downsample.1.running_mean": (256,),
        "layer2.0.conv2.weight": (128, 128, 3, 3), "layer4.2.bn3.weight": (2048,), "fc.weight": (1000, 2048),
    },
    "mobilenet_v2": {
        "features.0.0.weight": (32, 3, 3, 3), "features.1.conv.0.0.weight": (32, 1, 3, 3),
        "features.1.conv.1.weight": (16, 32, 1, 1), "features.2.conv.3.running_var": (24,),
        "features.18.0.weight": (1280, 320, 1, 1), "classifier.1.weight": (1000, 1280),
    },
    "efficientnet_b0": {
        "features.0.0.weight": (32, 3, 3, 3), "features.1.0.block.1.fc1.weight": (8, 32, 1, 1),
        "features.2.0.block.0.0.weight": (96, 16, 1, 1), "features.2.0.block.2.fc2.bias": (96,),
        "features.7.0.block.3.1.num_batches_tracked": (), "features.8.0.weight": (1280, 320, 1, 1),
        "classifier.1.bias": (1000,),
    },
    "convnext_tiny": {
        "features.0.0.weight": (96, 3, 4, 4), "features.0.1.bias": (96,), "features.1.0.layer_scale": (96, 1, 1),
        "features.1.2.block.0.weight": (96, 1, 7, 7), "features.2.1.weight": (192, 96, 2, 2),
        "features.5.8.block.5.weight": (384, 1536), "classifier.0.weight": (768,), "classifier.2.weight": (1000, 768),
    },
    "vit_tiny": {
        "class_token": (1, 1, 192), "conv_proj.weight": (192, 3, 16, 16), "encoder.pos_embedding": (1, 197, 192),
        "encoder.layers.encoder_layer_0.self_attention.in_proj_weight": (576, 192),
        "encoder.layers.encoder_layer_11.self_attention.out_proj.bias": (192,),
        "encoder.layers.encoder_layer_3.mlp.0.weight": (768, 192),
        "encoder.layers.encoder_layer_3.mlp.3.weight": (192, 768), "encoder.ln.weight": (192,),
        "heads.head.weight": (1000, 192),
    },
}  # fmt: skip
SMALL = {"digits": 4, "lenet": 12, "resnet20": 1, "norms": 4}
PATCHED = {"convnext_tiny": 32, "vit_tiny": 16}


@pytest.mark.parametrize("name", PARAMETERS)
def test_keys_and_sizes_are_those_that_are_published(name: str) -> None:
    with undrawn():
        state = getattr(models, name)().state_dict()
        parameters = dict(getattr(models, name)().named_parameters())
    assert sum(parameter.numel() for parameter in parameters.values()) == PARAMETERS[name]
    assert {key: state[key].shape for key in KEYS[name]} == KEYS[name]
    twin = getattr(vision, name)().state_dict()
    assert [(key, value.shape) for key, value in state.items()] == [(k, tuple(v.shape)) for k, v in twin.items()]
    assert {key: str(value.dtype) for key, value in state.items()} == {
        key: str(value.dtype).removeprefix("torch.") for key, value in twin.items()
    }


@pytest.mark.parametrize("form", ["pt", "safetensors"])
@pytest.mark.parametrize("name", ["resnet18", "vit_tiny"])
def test_files_of_pytorch(name: str, form: str, tmp_path: Path) -> None:
    twin = getattr(vision, name)(32)
    random_state(twin)
    path = str(tmp_path / f"{name}.{form}")
    if form == "pt":
        torch.save(twin.state_dict(), path)
    else:
        pytest.importorskip("safetensors.torch").save_file(twin.state_dict(), path)
    with undrawn():
        model = models.build(name, 3, 32, 1000)
    assert not any(model.load_state_dict(mn.load(path), strict=True))
    if name == "resnet18":
        assert model.bn1.num_batches_tracked.item() == 7
    x = images(2, 32).astype(np.float32)
    with torch.no_grad(), mn.no_grad():
        expected = twin.eval()(torch.from_numpy(x)).numpy()
        result = model.eval()(mn.tensor(x)).numpy()
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("name", models.BY_NAME)
def test_the_smallest_images_work_and_smaller_ones_are_an_error(name: str) -> None:
    size = models.SMALLEST[name]
    assert size == {**SMALL, **PATCHED}.get(name, 1)
    with undrawn():
        model = models.build(name, 2, size, 3).eval()
    assert model(mn.randn(1, 2, size, size)).shape == (1, 3)
    if size > 1:
        with pytest.raises(ValueError, match=f"{name} needs images of at least {size} x {size}"):
            models.build(name, 2, size - 1, 3)


def test_patches_fill_the_image() -> None:
    with pytest.raises(ValueError, match=r"vit_tiny needs .*, a multiple of 16; the images have 40 x 40") as error:
        models.build("vit_tiny", 3, 40, 3)
    assert "convnext_tiny" in str(error.value)
    assert not str(error.value).endswith("vit_tiny")


def test_an_unknown_name_is_an_error_that_lists_the_names() -> None:
    with pytest.raises(ValueError, match="no model 'vgg'; expected one of digits, lenet, resnet20, norms, resnet18"):
        models.build("vgg", 3, 32, 10)


def test_what_is_made_of_minorms_layers_alone_says_so() -> None:
    with pytest.raises(ValueError, match=r"resnet18 exists only with minorm's layers; .*torchvision's network"):
        models.build("resnet18", 3, 32, 10, torch.nn)


@pytest.mark.parametrize(
    "name",
    [
        "mobilenet_v2",
        "vit_tiny",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("resnet18", "efficientnet_b0", "convnext_tiny")),
    ],
)
def test_in_16_bits_it_computes_nearly_the_same(name: str) -> None:
    twin = getattr(vision, name)(32, 5)
    state = random_state(twin)
    x = images(2, 32).astype(np.float32)
    with undrawn():
        model = models.build(name, 3, 32, 5)
    model.load_state_dict(state)
    result = model.to(mn.bfloat16).eval()(mn.tensor(x).to(mn.bfloat16))
    assert result.dtype == mn.bfloat16
    with torch.no_grad():
        expected = twin.eval()(torch.from_numpy(x)).numpy()
    assert np.abs(result.float().numpy() - expected).max() < 0.1 * np.abs(expected).max()
    result.sum().backward()
    assert all(p.grad is not None and p.grad.dtype == mn.bfloat16 for p in model.parameters())


@pytest.mark.parametrize("name", PARAMETERS)
def test_weights_are_not_shipped(name: str) -> None:
    with undrawn():
        getattr(models, name)(weights=None)
    with pytest.raises(ValueError, match=f"{name}: weights is 'DEFAULT'; expected None, .* no weights; load a file"):
        getattr(models, name)(weights="DEFAULT")
