"""Lab 16: typically wrong answers lose the points they should, and no others; weak tests find fewer bugs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minorm.labs.checks.right import lab16_transformer_norms as right

BOTH, ODD = "both norms", "any number of axes, small and large numbers"
BLOCKS, DEEP = "post-norm and pre-norm", "other shapes, and several blocks"
LOGITS, GROWN = "logits of normalized heads", "logits do not change when weights grow"
BOUND = "the bound, which is reached"
BITS, EXTREME = "the bits of both conventions", "numbers whose squares overflow or vanish"
WHICH = {"which one a bfloat16 model uses", "which one a float16 model uses"}
MASKED, POOLED = "BatchNorm of the real tokens", "the mean of the real tokens, then LayerNorm"
PADDING = "more padding, or NaN in it, changes nothing"
RIGHT = "your tests pass on the right implementation"
BUGS = {
    "bug: padding is counted in n",
    "bug: padding is in the mean",
    "bug: padded positions are not 0",
    "bug: eps outside the root",
    "bug: NaN in the padding spreads",
    "bug: each sentence counts the same",
}
LOGITS_USE_IT = {LOGITS, GROWN}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        # the library's layer in place of a formula
        (
            "    c = x - x.mean(axis=-1, keepdims=True)\n",
            "    return F.layer_norm(mn.Tensor(x), (x.shape[-1],), mn.Tensor(s), mn.Tensor(b), eps).numpy()\n",
            {ODD},
        ),
        # E[x^2] - E[x]^2, which loses its digits far from 0
        (
            "var = (c * c).mean(axis=-1, keepdims=True)",
            "var = (x * x).mean(-1, keepdims=True) - x.mean(-1, keepdims=True) ** 2",
            {ODD},
        ),
        # float32 on the way
        (
            "c = x - x.mean(axis=-1, keepdims=True)",
            "x = np.float32(x)\n    c = x - x.mean(axis=-1, keepdims=True)",
            {BOTH, ODD, BLOCKS, DEEP, POOLED, PADDING},
        ),
        # a scale that is only there
        (
            "return x / np.sqrt(ms + eps) * s",
            "return x / np.sqrt(ms + eps)",
            {BOTH, ODD, *LOGITS_USE_IT, BITS, EXTREME, *WHICH},
        ),
        # only one of the blocks is right
        ("h = x + attention(norm(x, ", "h = norm(x, w['s1'], w['b1']) + attention(norm(x, ", {BLOCKS, DEEP}),
        (
            'return norm(h + mlp(h, w), w["s2"], w["b2"])',
            'return h + norm(mlp(h, w), w["s2"], w["b2"])',
            {BLOCKS, DEEP},
        ),
        # keys as they are
        ("k = rms_norm(split_heads(k, heads), s_k, eps)", "k = split_heads(k, heads) * s_k", {LOGITS, GROWN}),
        # the scale inside the norm, which takes it out again
        (
            "q = rms_norm(split_heads(q, heads), s_q, eps)",
            "q = rms_norm(split_heads(q, heads) * s_q, 1, eps)",
            {LOGITS, GROWN},
        ),
        # queries in columns
        ("return q @ k.swapaxes(-1, -2) / q", "return k @ q.swapaxes(-1, -2) / q", {LOGITS, GROWN}),
        # a bound that is never exceeded and never reached
        (
            "return len(s_q) ** 0.5 * np.abs(s_q * s_k).max()",
            "return len(s_q) ** 0.5 * np.abs(s_q * s_k).sum()",
            {BOUND},
        ),
        # statistics in 16 bits
        (
            "    wide = x.astype(np.float32)\n    return rms_norm(wide, np.float32(1), eps)",
            "    return rms_norm(x, x.dtype.type(1), eps)",
            {BITS, EXTREME, *WHICH},
        ),
        # a guess in place of a comparison
        ("    return fit[0] if len(fit) == 1 else (", "    return 'both' if fit else (", WHICH),
        ("    fit = [name for", "    return 'cast, then scale'\n    fit = [name for", WHICH),
        # the difference of values, which both conventions have small
        (
            "np.mean(f(x, s, eps) != y) <= 0.02",
            "np.allclose(np.float32(f(x, s, eps)), np.float32(y), rtol=0.02)",
            WHICH,
        ),
        # the number of sentences for n
        ("n = mask.sum()", "n = len(mask)", {MASKED, PADDING}),
        # the real tokens are thought to come first
        (
            "real = mask[:, :, None]",
            "mask = np.arange(mask.shape[1]) < mask.sum(axis=1)[:, None]\n    real = mask[:, :, None]",
            {MASKED, PADDING},
        ),
        # NaN that is made 0 in x, and padding that is then counted
        ("c = np.where(real, x - mean, 0)", "c = np.nan_to_num(x - mean)", {MASKED, PADDING}),
        # E[x^2] - E[x]^2
        (
            "return c / np.sqrt((c * c).sum(axis=(0, 1)) / n + eps)",
            "var = np.where(real, x * x, 0).sum(axis=(0, 1)) / n - mean**2\n    return c / np.sqrt(var + eps)",
            {PADDING},
        ),
        # a LayerNorm of each token, then the mean
        (
            "layer_norm(total / mask.sum(axis=1)[:, None], s, b, eps)",
            "np.where(mask[:, :, None], layer_norm(x, s, b, eps), 0).sum(axis=1) / mask.sum(axis=1)[:, None]",
            {POOLED, PADDING},
        ),
    ],
)
def test_wrong_answers(lost: Any, old: str, new: str, expected: set[str]) -> None:
    assert lost(16, (old, new)) == expected


FORMULA = "np.testing.assert_allclose(y[mask], expected[mask], rtol=1e-8)"
ZERO, NAN = "assert (y[~mask] == 0).all()", "np.testing.assert_allclose(norm.masked_batch_norm(x, mask), y)"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([(NAN, "pass")], {"bug: NaN in the padding spreads"}),
        ([(ZERO, "pass"), (NAN, "pass")], {"bug: padded positions are not 0", "bug: NaN in the padding spreads"}),
        # sentences of one length
        ([("np.array([2, 6, 3])", "np.array([6, 6, 6])"), (NAN, "pass"), (ZERO, "pass")],
         BUGS - {"bug: eps outside the root"}),
        # a test that is wrong: then no bug counts
        ([("tokens = x[mask]", "tokens = x.reshape(-1, 2)")], {RIGHT, *BUGS}),
        # tests that look at nothing
        ([(FORMULA, "pass"), (ZERO, "pass"), (NAN, "pass")], {RIGHT, *BUGS}),
    ],
)  # fmt: skip
def test_weak_and_wrong_tests(lost: Any, changes: list[tuple[str, str]], expected: set[str]) -> None:
    assert lost(16, *changes) == expected


@pytest.mark.parametrize("first", [False, True])
def test_the_expected_blocks_are_pytorchs(first: bool) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(6, 1, 10, 0.0, norm_first=first, batch_first=True, bias=True).double()
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.copy_(torch.randn_like(parameter) * ("norm" in name or "weight" in name))
        x = torch.randn(2, 5, 6, dtype=torch.float64)
        theirs = layer.train()(x).numpy()
    w = dict(zip("qkv", layer.self_attn.in_proj_weight.detach().numpy().T.reshape(6, 3, 6).swapaxes(0, 1), strict=True))
    w |= {"o": layer.self_attn.out_proj.weight.detach().numpy().T}
    w |= {"up": layer.linear1.weight.detach().numpy().T, "down": layer.linear2.weight.detach().numpy().T}
    w |= {"s1": layer.norm1.weight.detach().numpy(), "b1": layer.norm1.bias.detach().numpy()}
    w |= {"s2": layer.norm2.weight.detach().numpy(), "b2": layer.norm2.bias.detach().numpy()}
    np.testing.assert_allclose(
        (right.pre_norm if first else right.post_norm)(x.numpy(), w), theirs, rtol=1e-9, atol=1e-12
    )


def test_the_expected_rms_norm_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    x, s = np.random.default_rng(0).standard_normal((2, 3, 7))
    theirs = torch.nn.functional.rms_norm(torch.tensor(x), (7,), torch.tensor(s[0]), 0.3).numpy()
    np.testing.assert_allclose(right.rms_norm(x, s[0], 0.3), theirs, rtol=1e-12)
