"""The vision transformer against a twin in torch.nn; its positions for images of another size against PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
from minorm import models
from minorm.models import VisionTransformer, interpolate_embeddings

torch = pytest.importorskip("torch")

from benchmarks import vision  # noqa: E402  after importorskip
from tests.models.networks import images, pair, random_state, same_evaluation, same_step  # noqa: E402
from tests.models.undrawn import undrawn  # noqa: E402

SMALL = {"image_size": 32, "patch_size": 8, "num_layers": 2, "num_heads": 2, "hidden_dim": 12, "mlp_dim": 20}


def test_the_whole_network() -> None:
    model, twin = pair(models.vit_tiny, vision.vit_tiny(32, classes=5), image_size=32)
    same_evaluation(model, twin, images(2, 32))
    same_step(model, twin, images(2, 32))


def test_its_attention_is_pytorchs_layer() -> None:
    """The twin writes attention out; here the same weights stand in PyTorch's own layer."""
    block = VisionTransformer(**SMALL).encoder.layers[0].to(mn.float64)
    theirs = torch.nn.MultiheadAttention(12, 2, batch_first=True, dtype=torch.float64)
    block.self_attention.load_state_dict(random_state(theirs))
    x = np.random.default_rng(0).standard_normal((2, 5, 12))
    expected, _ = theirs(*[torch.from_numpy(x)] * 3, need_weights=False)
    result, _ = block.self_attention(*[mn.tensor(x)] * 3, need_weights=False)
    np.testing.assert_allclose(result.detach().numpy(), expected.detach().numpy(), rtol=1e-10, atol=1e-12)


def test_dropout_and_how_weights_begin() -> None:
    model = VisionTransformer(**{**SMALL, "hidden_dim": 96, "mlp_dim": 384}, dropout=0.1, attention_dropout=0.2)
    block = model.encoder.layers[0]
    assert [model.encoder.dropout.p, block.dropout.p, block.mlp[2].p, block.mlp[4].p] == [0.1] * 4
    assert block.self_attention.dropout == 0.2
    assert model.conv_proj.weight.std().item() == pytest.approx((3 * 8 * 8) ** -0.5, rel=0.03)
    assert model.encoder.pos_embedding.std().item() == pytest.approx(0.02, rel=0.1)
    bound = (6 / (96 + 384)) ** 0.5
    assert 0.99 * bound < block.mlp[0].weight.abs().max().item() <= bound
    assert block.mlp[0].bias.std().item() == pytest.approx(1e-6, rel=0.2)
    assert model(mn.randn(1, 3, 32, 32)).tolist() == [[0.0] * 1000]  # the head begins as 0


@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
@pytest.mark.parametrize("size", [16, 40, 64])
def test_positions_for_another_size(mode: str, size: int) -> None:
    model = VisionTransformer(**SMALL, num_classes=3).to(mn.float64)
    before = model.state_dict()
    state = interpolate_embeddings(size, 8, before, interpolation_mode=mode)
    given = torch.from_numpy(before["encoder.pos_embedding"].numpy().copy())
    picture = given[:, 1:].reshape(1, 4, 4, 12).permute(0, 3, 1, 2)
    resized = torch.nn.functional.interpolate(picture, size=(size // 8, size // 8), mode=mode, align_corners=True)
    expected = torch.cat([given[:, :1], resized.permute(0, 2, 3, 1).reshape(1, -1, 12)], 1).numpy()
    np.testing.assert_allclose(state["encoder.pos_embedding"].numpy(), expected, rtol=1e-9, atol=1e-12)
    assert before["encoder.pos_embedding"].shape == (1, 17, 12)
    larger = VisionTransformer(**{**SMALL, "image_size": size}, num_classes=3).to(mn.float64)
    larger.load_state_dict(state)
    assert larger(mn.randn(2, 3, size, size, dtype=mn.float64)).shape == (2, 3)


def test_the_same_size_keeps_positions_and_heads_can_be_left_out() -> None:
    state = VisionTransformer(**SMALL).state_dict()
    same = interpolate_embeddings(32, 8, state)
    assert same.keys() == state.keys()
    assert same["encoder.pos_embedding"] is state["encoder.pos_embedding"]
    headless = interpolate_embeddings(64, 8, state, reset_heads=True)
    assert state.keys() - headless.keys() == {"heads.head.weight", "heads.head.bias"}


def test_what_it_refuses() -> None:
    with undrawn():
        model, state = VisionTransformer(**SMALL), models.vit_tiny(32).state_dict()
        with pytest.raises(ValueError, match="VisionTransformer: patch_size=16 must divide image_size=40"):
            models.vit_tiny(40)
        with pytest.raises(ValueError, match="VisionTransformer: num_heads=5 must divide hidden_dim=12"):
            VisionTransformer(**{**SMALL, "num_heads": 5})
    with pytest.raises(ValueError, match=r"x.shape is \(1, 3, 40, 40\); expected 32 x 32 pixels, .*interpolate_emb"):
        model(mn.zeros(1, 3, 40, 40))
    with pytest.raises(ValueError, match="interpolate_embeddings: patch_size=16 must divide image_size=40"):
        interpolate_embeddings(40, 16, state)
    with pytest.raises(
        ValueError, match=r"model_state has no 'encoder\.pos_embedding'; expected a VisionTransformer's"
    ):
        interpolate_embeddings(32, 16, models.digits_cnn().state_dict())
    with pytest.raises(ValueError, match=r"shape \(1, 4, 192\); expected \(1, 1 \+ n \* n, hidden_dim\)"):
        interpolate_embeddings(32, 16, {**state, "encoder.pos_embedding": mn.zeros(1, 4, 192)})
