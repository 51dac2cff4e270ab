# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 16: Norms in transformers
#
# **The question.** A transformer has two norms in each block, perhaps two more in its attention, and sentences of
# unequal length. Where do the norms go, in which type do they compute, and which positions do they count?
#
# You write LayerNorm and RMSNorm, put them before and after the residual sum, and see what that does to the
# gradients of a deep model. Then you keep attention's logits small, tell from single bits how a model casts, and
# leave padding out of the statistics. At the end you write tests, which are graded by the bugs that they find.
#
# You need labs 1, 3 and 6. Time: about 90 minutes.

# %%
import numpy as np

import minorm as mn
import minorm.functional as F
from minorm.labs.visible import checker

check = checker(16, globals())

# %% tags=["plot"]
import matplotlib.pyplot as plt

from minorm.labs.pictures import show
from minorm.plots import BLUE, GREY, STYLE, VERMILLION

plt.rcParams.update(STYLE)

# %% [markdown]
# ## Task 16.1: over the last axis
#
# A text is an array x of shape (N, T, C): sentences, positions, features. Both norms of transformers take their
# statistics over the last axis alone. So a row is one token, with m = C elements, and no token sees another:
#
#     LayerNorm   mean = 1/m sum(x)    var = 1/m sum((x - mean)^2)    y = (x - mean) / sqrt(var + eps) * s + b
#     RMSNorm                          ms  = 1/m sum(x^2)             y = x / sqrt(ms + eps) * s
#
# RMSNorm subtracts no mean and adds no bias. s and b have shape (C). Write both for any number of axes in front, and
# for whole numbers in x as well.


# %%
def layer_norm(x, s, b, eps=1e-5):
    """y over the last axis."""
    # SOLUTION 16.1: LayerNorm over the last axis
    c = x - x.mean(axis=-1, keepdims=True)
    var = (c * c).mean(axis=-1, keepdims=True)
    return c / np.sqrt(var + eps) * s + b
    # END


def rms_norm(x, s, eps=1e-6):
    """y over the last axis, without a mean and without a bias."""
    # SOLUTION 16.1: RMSNorm over the last axis
    ms = (x * x).mean(axis=-1, keepdims=True)
    return x / np.sqrt(ms + eps) * s
    # END


# %% tags=["check"]
check("16.1")

# %% [markdown]
# ## Task 16.2: before or after
#
# A block has two branches, attention and an MLP, and a residual sum around each. There are two places for the norms:
#
#     post-norm   h = norm1(x + attention(x))        y = norm2(h + mlp(h))
#     pre-norm    h = x + attention(norm1(x))        y = h + mlp(norm2(h))
#
# The first transformer had post-norm; most models since have pre-norm. In pre-norm x runs through the whole model
# without meeting a norm: only the branches see one. That is the difference that matters below.
#
# The branches are given. `w` is a dict of a block's arrays: q, k, v, o of attention, up and down of the MLP, s1 and
# b1 of norm1, s2 and b2 of norm2. `norm(x, s, b)` is your layer_norm; it also takes Tensors, so that your blocks can
# be trained.


# %%
def softmax(a):
    """Over the last axis, of an array or a Tensor."""
    if isinstance(a, mn.Tensor):
        return F.softmax(a, -1)
    e = np.exp(a - a.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention(x, w):
    """One head: each position takes a weighted mean of all."""
    q, k, v = x @ w["q"], x @ w["k"], x @ w["v"]
    return softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5) @ v @ w["o"]


def mlp(x, w):
    """Two layers with a ReLU, at each position."""
    h = x @ w["up"]
    h = F.relu(h) if isinstance(h, mn.Tensor) else np.maximum(h, 0)
    return h @ w["down"]


def norm(x, s, b):
    """LayerNorm over the last axis: yours for arrays, the library's for Tensors."""
    if isinstance(x, mn.Tensor):
        return F.layer_norm(x, x.shape[-1:], s, b)
    return layer_norm(x, s, b)


def post_norm(x, w):
    """A block whose norms stand behind the residual sums."""
    # SOLUTION 16.2: the post-norm block
    h = norm(x + attention(x, w), w["s1"], w["b1"])
    return norm(h + mlp(h, w), w["s2"], w["b2"])
    # END


def pre_norm(x, w):
    """A block whose norms stand inside the branches."""
    # SOLUTION 16.2: the pre-norm block
    h = x + attention(norm(x, w["s1"], w["b1"]), w)
    return h + mlp(norm(h, w["s2"], w["b2"]), w)
    # END


# %% tags=["check"]
check("16.2")

# %% [markdown]
# ### Why deep post-norm needs warm-up
#
# A model of 24 of your blocks reads digits, each image as a text of 8 rows, and has not been trained at all. (A
# pre-norm model has one more norm at the end, since nothing else limits what has been added up.) Left, the gradient
# of each block's `down` matrix. Right, one step of gradient descent from there: how the loss changes with the length
# of the step. The lines are means over five initializations.
#
# **Guess before you run it.** In which of the two is the gradient of the *last* block larger, and how does that go
# together with the largest step that still helps?

# %%
WIDTH, DEPTH, SEEDS = 24, 24, 5
RATES = np.logspace(-3, 0.5, 11)


def untrained(depth, seed):
    """The blocks' weights, and those of both ends, as Tensors."""
    rng = np.random.default_rng(seed)

    def drawn(rows, columns):
        size = (2 / (rows + columns)) ** 0.5
        array = rng.standard_normal((rows, columns)) * size
        return mn.Tensor(array.astype(np.float32), requires_grad=True)

    def block():
        w = {name: drawn(WIDTH, WIDTH) for name in "qkvo"}
        w.update(up=drawn(WIDTH, 4 * WIDTH), down=drawn(4 * WIDTH, WIDTH))
        ones = {name: mn.Tensor(np.ones(WIDTH, np.float32)) for name in ("s1", "s2")}
        zeros = {name: mn.Tensor(np.zeros(WIDTH, np.float32)) for name in ("b1", "b2")}
        return {**w, **ones, **zeros}

    ends = {"rows": drawn(8, WIDTH), "places": drawn(8, WIDTH)}
    return [block() for _ in range(depth)], {**ends, "classes": drawn(WIDTH, 10)}


def loss_of(block, model, images, labels):
    """Cross entropy of the model with such blocks."""
    blocks, ends = model
    x = images @ ends["rows"] + ends["places"]
    for w in blocks:
        x = block(x, w)
    if block is pre_norm:
        x = norm(x, blocks[0]["s1"], blocks[0]["b1"])
    return F.cross_entropy(x.mean(1) @ ends["classes"], labels)


def first_step(block, seed, images, labels):
    """Gradient norms of each down, and the change of the loss at each rate."""
    model = untrained(DEPTH, seed)
    before = loss_of(block, model, images, labels)
    before.backward()
    weights = [v for w in model[0] for v in w.values() if v.grad is not None]
    sizes = [np.linalg.norm(w["down"].grad.numpy()) for w in model[0]]
    gradients, gone, changes = [v.grad.numpy().copy() for v in weights], 0.0, []
    for rate in RATES:
        with mn.no_grad():
            for v, g in zip(weights, gradients, strict=True):
                v -= mn.Tensor((np.float32(rate - gone) * g).astype(np.float32))
            changes.append(loss_of(block, model, images, labels).item() - before.item())
        gone = rate
    return sizes, changes


# %% tags=["plot"]
from sklearn.datasets import load_digits

digits = load_digits()
pixels = (digits.data[:64].reshape(-1, 8, 8) - digits.data.mean()) / digits.data.std()
images, labels = mn.Tensor(pixels.astype(np.float32)), mn.Tensor(digits.target[:64])
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.4), layout="constrained")
for block, color, style in ((post_norm, VERMILLION, "s--"), (pre_norm, BLUE, "o-")):
    runs = [first_step(block, seed, images, labels) for seed in range(SEEDS)]
    name = block.__name__.replace("_", "-")
    sizes = np.exp(np.mean([np.log(run[0]) for run in runs], axis=0))
    look = {"color": color, "markersize": 5, "label": name}
    left.semilogy(range(1, DEPTH + 1), sizes, style, **look)
    changes = np.mean([run[1] for run in runs], axis=0)
    right.semilogx(RATES, changes, style, **look)
left.set(
    title="Post-norm: the last blocks have the largest gradients",
    xlabel="block, counted from the input",
    ylabel="norm of the gradient of its down matrix",
)
right.axhline(0, color=GREY, linewidth=1)
right.set(
    title="Post-norm: only a small first step helps",
    xlabel="learning rate of the first step",
    ylabel="change of the loss",
)
left.legend()
right.legend()
show(
    figure,
    "Left, the norm of the gradient of the down matrix, logarithmic, in each of 24 "
    "untrained blocks. In pre-norm it falls from 1.2 in the first block to 0.3 in the "
    "last. In post-norm it rises from 0.85 to 1.4, more than four times that of "
    "pre-norm. Right, the change of the loss after one step of gradient descent over the "
    "learning rate, logarithmic. Post-norm gains most at 0.005 and loses from about 0.03 "
    "on. Pre-norm gains most at 0.02 and loses from about 0.1 on.",
)

# %% [markdown]
# In pre-norm each branch adds to an x that grows with depth, and the last norm divides the gradient by that size: the
# deeper the model, the smaller. In post-norm every sum is normalized at once, so the last blocks get a gradient that
# does not shrink with depth. At first they see noise from the blocks below, and a step of the rate that suits the
# rest of the training throws them far away. *Warm-up* is the cure: the learning rate begins near 0 and rises over
# the first steps, until the gradients at the top have become smaller.
#
# ## Task 16.3: QK norm
#
# A logit of attention is q . k / sqrt(D), where D is the length of a head. It is quadratic in the weights, and in
# long training it may grow until each softmax looks at one position only and passes no gradient on. QK norm
# normalizes both sides: an RMSNorm over each head's D elements, with a learned scale that all heads share, s_q for
# queries and s_k for keys (D each):
#
#     logits = rms_norm(q, s_q) . rms_norm(k, s_k) / sqrt(D)
#
# `split_heads` gives (N, heads, T, D). The logits are (N, heads, T, T): queries in rows, keys in columns.
#
# Then find the bound: how large can |logit| become, whatever q and k are? A normalized head has a length of sqrt(D)
# at most. Give the smallest number that is never exceeded. (Write a logit as a sum over D elements. The scales come
# in as s_q * s_k.)


# %%
def split_heads(x, heads):
    """(N, T, heads * D) -> (N, heads, T, D)."""
    n, t, width = x.shape
    return x.reshape(n, t, heads, width // heads).swapaxes(1, 2)


def qk_logits(q, k, heads, s_q, s_k, eps=1e-6):
    """(N, heads, T, T) from q and k (N, T, heads * D), normalized in each head."""
    # SOLUTION 16.3: normalize queries and keys in each head, then multiply
    q = rms_norm(split_heads(q, heads), s_q, eps)
    k = rms_norm(split_heads(k, heads), s_k, eps)
    return q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    # END


def logit_bound(s_q, s_k):
    """The smallest number that no |logit| exceeds."""
    # SOLUTION 16.3: the largest logit
    return len(s_q) ** 0.5 * np.abs(s_q * s_k).max()
    # END


# %% tags=["check"]
check("16.3")

# %% tags=["plot"]
rng = np.random.default_rng(0)
HEADS, SIZE = 4, 16
x = rng.standard_normal((2, 20, HEADS * SIZE))
to_q, to_k = rng.standard_normal((2, HEADS * SIZE, HEADS * SIZE)) / (HEADS * SIZE) ** 0.5
FACTORS = np.logspace(0, 1.5, 13)
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.2), layout="constrained")
one = np.ones(SIZE)
for name, color, style in (("without", VERMILLION, "s--"), ("with QK norm", BLUE, "o-")):
    largest, sharpest = [], []
    for factor in FACTORS:
        q, k = factor * (x @ to_q), factor * (x @ to_k)
        if name == "without":
            q, k = split_heads(q, HEADS), split_heads(k, HEADS)
            logits = q @ k.swapaxes(-1, -2) / SIZE**0.5
        else:
            logits = qk_logits(q, k, HEADS, one, one)
        largest.append(np.abs(logits).max())
        sharpest.append(softmax(logits).max(axis=-1).mean())
    look = {"color": color, "markersize": 5, "label": name}
    left.loglog(FACTORS, largest, style, **look)
    right.semilogx(FACTORS, sharpest, style, **look)
left.axhline(logit_bound(one, one), color=GREY, linestyle=":", label="your bound")
left.set(
    title="With QK norm no weight makes a logit large",
    xlabel="factor of the weights of q and k",
    ylabel="largest |logit|",
)
right.set(
    title="Without it attention ends at one position",
    xlabel="factor of the weights of q and k",
    ylabel="largest attention weight, mean",
    ylim=(0, 1.02),
)
left.legend()
right.legend(loc="center right")
show(
    figure,
    "Left, the largest logit over the factor of the weights, both logarithmic. Without "
    "QK norm it rises from 4 to 4000, with the square of the factor. With QK norm it "
    "stays at about 3, below the bound of 4. Right, the largest attention weight of a "
    "query, on average. Without QK norm it rises from 0.2 to 1, with it it stays at 0.2.",
)

# %% [markdown]
# ## Task 16.4: which bits?
#
# Weights and activations are float16 or bfloat16, statistics are float32 (lab 6). So RMSNorm casts up at the
# beginning and down at the end. But where is the end? Two conventions are in use:
#
#     scale, then cast    y = cast(xhat * s)      all in float32, one rounding
#     cast, then scale    y = cast(xhat) * s      xhat is rounded, and the product once more
#
# In Hugging Face's transformers, Llama casts first and Gemma scales first. A model runs with either; but a kernel
# with the wrong one changes bits in every layer, and outputs that should be equal are not.
#
# Write both. x and s have the same 16-bit type, and y has it too. Everything before the cast is float32, s included.
#
# Then be a detective: given x, s and the y of an unknown model, which convention does it
# follow? Its statistics may differ from yours in float32's last bit, which rounds a stray
# element of y the other way. So compare *how many* elements differ in their bits from
# each of your two. A convention fits if at most 2 % of the elements differ. Answer
# `"scale, then cast"` or `"cast, then scale"` if one alone fits, else `"both"` or
# `"neither"`.


# %%
def scale_then_cast(x, s, eps=1e-6):
    """RMSNorm over the last axis of 16-bit numbers, rounded once."""
    # SOLUTION 16.4: everything in float32, then one cast
    return rms_norm(x.astype(np.float32), s.astype(np.float32), eps).astype(x.dtype)
    # END


def cast_then_scale(x, s, eps=1e-6):
    """RMSNorm over the last axis of 16-bit numbers, xhat rounded before it is scaled."""
    # SOLUTION 16.4: xhat in float32, a cast, then the scale
    wide = x.astype(np.float32)
    return rms_norm(wide, np.float32(1), eps).astype(x.dtype) * s
    # END


def convention(x, s, y, eps=1e-6):
    """Which of the two gives the bits of y."""
    # SOLUTION 16.4: count the elements that differ
    names = {"scale, then cast": scale_then_cast, "cast, then scale": cast_then_scale}
    fit = [name for name, f in names.items() if np.mean(f(x, s, eps) != y) <= 0.02]
    return fit[0] if len(fit) == 1 else ("both" if fit else "neither")
    # END


# %% tags=["check"]
check("16.4")

# %% [markdown]
# How different are they? Guess the share of elements before you run the next cell, then its largest difference.

# %% tags=["plot"]
rng = np.random.default_rng(1)
for name, kind in (("bfloat16", mn.bfloat16), ("float16", mn.float16)):
    x = rng.standard_normal((500, 64)).astype(kind)
    s = rng.uniform(0.5, 2, 64).astype(kind)
    one, two = (f(x, s).astype(np.float64) for f in (scale_then_cast, cast_then_scale))
    apart = np.abs(one - two)[one != two] / np.abs(one)[one != two]
    share = np.mean(one != two)
    print(f"{name}: {share:.0%} of the elements differ, by {apart.max():.2%} at most")

# %% [markdown]
# ## Task 16.5: padding
#
# Sentences of a batch are padded to one length. `mask` (N, T) is True at real tokens. A norm over the last axis
# does not care, since no token sees another. But two things do: a BatchNorm over a text, and whatever is pooled over
# positions. Both must count real tokens only:
#
#     n = sum(mask)     mean = 1/n sum over real tokens of x     var = 1/n sum over real tokens of (x - mean)^2
#
# with one mean and var for each feature, over all sentences together; y is 0 at padded positions. And
# `pooled_layer_norm`: the mean of each sentence over its own real tokens, (N, C), then your LayerNorm.
#
# What stands at padded positions may be anything, even NaN, which no factor 0 makes go away (why?); `np.where` does.
# Each sentence has at least one real token. As in task 16.1, x may be whole numbers.


# %%
def masked_batch_norm(x, mask, eps=1e-5):
    """xhat with the statistics of the real tokens; 0 at padded positions."""
    # SOLUTION 16.5: statistics of the real tokens
    real = mask[:, :, None]
    n = mask.sum()
    mean = np.where(real, x, 0).sum(axis=(0, 1)) / n
    c = np.where(real, x - mean, 0)
    return c / np.sqrt((c * c).sum(axis=(0, 1)) / n + eps)
    # END


def pooled_layer_norm(x, mask, s, b, eps=1e-5):
    """LayerNorm of each sentence's mean over its real tokens, (N, C)."""
    # SOLUTION 16.5: the mean of the real tokens, then LayerNorm
    total = np.where(mask[:, :, None], x, 0).sum(axis=1)
    return layer_norm(total / mask.sum(axis=1)[:, None], s, b, eps)
    # END


# %% tags=["check"]
check("16.5")

# %% [markdown]
# ### The neighbour's length
#
# A sentence of five tokens shares a batch with one neighbour, whose length grows. The five tokens never change. The
# neighbour says the same five tokens again and again, so that the real tokens keep their mean and variance. Padded
# positions hold the vector of a padding token, as an embedding gives it. **Guess before you run it:** what happens to
# the short sentence if the mask is forgotten, in a BatchNorm and in a pooled LayerNorm?

# %%
LENGTHS = range(5, 61, 5)


def moved(function, masked):
    """How far the result of a short sentence moves while its neighbour gets longer."""
    rng = np.random.default_rng(2)
    sentence, padding = rng.standard_normal((5, 8)) + 1, rng.standard_normal(8)
    results = []
    for length in LENGTHS:
        x = np.stack([np.tile(padding, (length, 1)), np.tile(sentence, (length // 5, 1))])
        x[0, :5] = sentence
        mask = np.arange(length) < np.array([[5], [length]])
        results.append(function(x, mask if masked else np.ones_like(mask))[0][:5])
    return [np.abs(result - results[0]).max() for result in results]


def pooled(x, mask):
    return pooled_layer_norm(x, mask, np.ones(8), np.zeros(8))[:, None]


# %% tags=["plot"]
figure, panels = plt.subplots(1, 2, figsize=(12, 4.2), layout="constrained")
for panel, function in zip(panels, (masked_batch_norm, pooled), strict=True):
    for masked, color, style in ((False, VERMILLION, "s--"), (True, BLUE, "o-")):
        label = "with the mask" if masked else "padding counted"
        change = moved(function, masked)
        panel.plot(LENGTHS, change, style, color=color, markersize=5, label=label)
    panel.set_xlabel("length of its neighbour")
    panel.set_ylabel("largest change of its result")
    panel.legend(loc="center right")
panels[0].set_title("A short sentence in BatchNorm")
panels[1].set_title("A short sentence in a pooled LayerNorm")
show(
    figure,
    "How far the result of a sentence of five tokens moves while its neighbour grows "
    "from 5 to 60 tokens. In both panels it stays at 0 with the mask. With padding "
    "counted, it moves by up to 1.2 in BatchNorm (left) and 2.3 in a pooled LayerNorm "
    "(right), and most of that comes from the first five padded positions.",
)

# %% [markdown] With the mask the sentence keeps its result, whatever its neighbours are.
# Without, a class can change because another sentence is longer. In BatchNorm a
# neighbour's *real* tokens do belong to the statistics: that is what a BatchNorm is. But
# how much padding there is must not matter.
#
# ## Task 16.6: tests that find bugs
#
# As in lab 3: your tests run on a right implementation, where all must pass, and on wrong ones, where one must fail;
# each bug found is a point. `norm` has one function,
#
#     y = norm.masked_batch_norm(x, mask, eps=1e-5)
#
# for float64 x (N, T, C), as in task 16.5. The bugs: padding counted in n; padding in the mean; y not 0 at padded
# positions; eps outside the root; a NaN in the padding that spreads; each sentence counted the same, however long.
# Properties make good tests here. What happens to y if the padded values change, or if there is more padding?


# %%
def test_formula(norm):
    """The properties of y."""
    # SOLUTION 16.6: compare with the real tokens, taken out one by one
    rng = np.random.default_rng(0)
    x = 0.01 * rng.standard_normal((3, 6, 2)) + 1
    lengths = np.array([2, 6, 3])
    mask = np.arange(6) < lengths[:, None]
    tokens = x[mask]
    expected = (x - tokens.mean(axis=0)) / np.sqrt(tokens.var(axis=0) + 1e-3)
    y = norm.masked_batch_norm(x, mask, eps=1e-3)
    np.testing.assert_allclose(y[mask], expected[mask], rtol=1e-8)
    # END


def test_padding(norm):
    """The harm that padding must not do."""
    # SOLUTION 16.6: padding is 0 in y, and its values do not matter
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 5, 3))
    mask = np.arange(5) < np.array([[2], [5]])
    y = norm.masked_batch_norm(x, mask)
    assert (y[~mask] == 0).all()
    x[~mask] = np.nan
    np.testing.assert_allclose(norm.masked_batch_norm(x, mask), y)
    # END


# %% tags=["check"]
check("16.6")

# %% [markdown]
# ## To think about
#
# 1. A pre-norm model needs one norm at its end. How does the size of x grow with the number of blocks, compared with
#    what one branch adds, and what does that say about the last blocks of a very deep model?
# 2. QK norm has a learned scale. What would attention lose without it, that is with s_q = s_k = 1, if D is 16?
# 3. Gemma stores s - 1 and computes xhat * (1 + s). Why may that be better in bfloat16, and where does weight decay
#    pull the scale?
# 4. In the last picture let the padding be 0. The pooled LayerNorm without a mask then hardly moves. Why, and why
#    does that not save you in a model of several layers?
