"""The texts of each finding: a sentence with its numbers, why the finding matters, and what to do.

The texts are filled in with the finding's numbers. docs/doctor.md explains each finding at length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Words:
    """The three texts of a finding; `seen` is a sentence with the numbers."""

    seen: str
    why: str
    fix: str


FORMULA = "nn.utils.precise_bn(model, loader)"
WORDS: Mapping[str, Words] = {
    "stale_statistics": Words(
        "running statistics are {offset:.2f} off the data's ({limit:.2f} is still usual); channel {channel} is "
        "{channel_offset:.2f} off",
        "evaluation normalizes with the running mean and variance, and those describe other data than the layer now "
        "sees: too few steps since they began, weights that moved on, other data, or a wrong momentum",
        f"{FORMULA} computes them anew; or minorm doctor MODEL --fix precise_bn --out FILE",
    ),
    "untouched_statistics": Words(
        "the running mean is 0 and the running variance 1 in all {channels} channels: no batch has come in",
        "evaluation does not normalize at all here. The layer was frozen or in evaluation mode while the model "
        "trained, or its statistics were never saved",
        f"{FORMULA} fills them in; or minorm doctor MODEL --fix precise_bn --out FILE. Train with model.train()",
    ),
    "momentum_convention": Words(
        "momentum is {momentum:g}: a step keeps {kept:.0%} of the old statistics",
        "in minorm and ONNX momentum is the share that is kept, in PyTorch the share that comes in. Taken over as it "
        "stands, the statistics are those of the last batch or two, and change with it",
        "layer.momentum = {usual:g}; statistics that have suffered: " + FORMULA,
    ),
    "frozen_norm_drifts": Words(
        "scale and bias require no grad, but the layer is in training mode: half of the running statistics are new "
        "after {half_after} batches",
        "requires_grad=False stops the optimizer alone. In training mode each forward pass still blends the batch into "
        "the running mean and variance, so that the layer which was to stay as it is becomes another one",
        "nn.utils.freeze_norm(model), or layer.freeze(), which hold the statistics as well",
    ),
    "saved_in_training": Words(
        "the graph has this layer in training mode, with running statistics of {channels} channels",
        "a runtime then normalizes each batch by itself: the output for an image depends on the images beside it, "
        "and the running statistics are not used. It was exported before model.eval(), or to be trained on",
        "for inference, export with training=False (PyTorch: after model.eval()); a loaded graph: model.eval(), then "
        "minorm.onnx.export",
    ),
    "variance_convention": Words(
        "the running variance fits N - 1: with {values} values of a channel in a batch it is {factor:.2f} times what a "
        "batch is divided by ({ratio:.2f} was measured)",
        "training divides by the variance of N values. PyTorch keeps the one of N - 1 as the running variance; minorm, "
        "ONNX, Keras and Flax keep that of N. With few values per channel, outputs are smaller in evaluation than in "
        "training, and a model that trains on in another framework moves to other statistics",
        "a larger batch; or keep the variance that training divides by: " + FORMULA,
    ),
    "eps_underflows": Words(
        "eps is {eps:.3g}, which float16 makes {in_float16:.3g}; the layer's numbers are {type}",
        "the smallest number of float16 is 6e-8. A runtime that adds eps in float16 divides by sqrt(variance + 0), "
        "and by 0 where the variance is as small",
        "eps=1e-5 in the layer, or compute the normalization in float32 (compute_dtype=mn.float32)",
    ),
    "skipped_batches": Words(
        "{skipped} batches, {share:.1%} of all, were left out of the running statistics: their mean or variance was "
        "NaN, infinite or too large",
        "a single NaN would have stayed in the running statistics for good. A few are usual in float16; if there are "
        "many, evaluation normalizes with the statistics of the other batches only",
        "look for NaN and infinity in the data; mn.autocast with bfloat16, which reaches as far as float32; a smaller "
        "learning rate",
    ),
    "train_eval_gap": Words(
        "{changes}",
        "evaluation, with running statistics, and the same images normalized by their batch give other answers. What "
        "training has learned does not all arrive",
        f"mend the cause; where no layer stands out, {FORMULA}. Images scaled otherwise than in training look the "
        "same: compare the preprocessing",
    ),
    "small_batch": Words(
        "in batches of {batch_size} samples the output is {error:.0%} of a standard deviation off; the mean "
        "{mean_error:.0%}, the variance {variance_error:.0%}",
        "each image is normalized by the few that came with it. That is noise in training which evaluation does not "
        "have, and pixels do not help: those of an image are alike",
        "a batch of {batch_for_10_percent:,} makes it 10 %; else nn.GroupNorm, nn.SyncBatchNorm on several ranks, or "
        "freeze the statistics: nn.utils.freeze_norm(model)",
    ),
    "batch_of_one": Words(
        "batches have one image: each is normalized by itself alone",
        "in training this is an instance normalization, in evaluation it is not: the network is asked for something "
        "it has never done. Behind a global pooling all outputs are the bias",
        "a larger batch_size; else nn.GroupNorm, or freeze the statistics: nn.utils.freeze_norm(model)",
    ),
    "large_mean": Words(
        "the mean is {mean:.4g} where the deviation is {deviation:.3g}: squaring loses {digits_lost:.1f} digits",
        "float32 has 7. minorm centres before it squares and keeps them; a runtime that computes E[x^2] - E[x]^2 "
        "does not, and gives another variance, or a negative one",
        "subtract the mean first: transforms.Normalize for inputs, bias=False in the layer before; compute in "
        "float64: compute_dtype=mn.float64",
    ),
    "eps_swallows_variance": Words(
        "eps is {eps:.3g}, the median variance {variance:.3g}: {eps_over_variance:.2g} times",
        "the layer divides by sqrt(variance + eps), here mostly by sqrt(eps): outputs are far smaller than 1, and no "
        "longer independent of the input's scale",
        "scale the input up (images of 0 to 1, not 0 to 1/255), or eps={small:.1g} in the layer",
    ),
    "vanished_scale": Words(
        "{channels} of {of} scales are below a thousandth of the usual {usual:.3g}; the smallest, {smallest:.2g}, is "
        "that of channel {channel}",
        "such a channel gives its bias, whatever the image shows, and the layers before it get no gradient through it",
        "no weight decay on scales and biases (a separate parameter group with weight_decay=0), or prune the channels",
    ),
    "dead_channel": Words(
        "{channels} of {of} channels of {activation} give 0 on all images; channel {channel} is the first",
        "where an activation is off for every image no gradient comes back, and the channel does not recover by itself",
        "a smaller learning rate with warm-up, or nn.LeakyReLU; prune the channels. A few are usual",
    ),
    "saturated_channel": Words(
        "{channels} of {of} channels of {activation} are flat on 90 % of their values; {share:.0%} of all values are",
        "where the slope is below a hundredth of its largest, hardly any gradient passes",
        "normalize before the activation, or smaller weights: the layer before it gives values that are too large",
    ),
    "undone_norm": Words(
        "without {earlier} the output changes by {change:.1%} of its deviation",
        "this normalization undoes the one before: same statistics, nothing but pooling between. It costs time and "
        "gradient noise, and its scale trains no more than by its sign",
        "take out {earlier}",
    ),
    "folded_norm": Words(
        "the bias cancels the mean of the product: correlation {correlation:.2f}, slope {slope:.2f} over channels",
        "so a BatchNorm looks that an export has folded into the weights. It is no layer any more: fine for inference, "
        "but training goes on without a normalization",
        "to train on, take the model from before folding: PyTorch's export with "
        "training=TrainingMode.PRESERVE, or dynamo=True, optimize=False",
    ),
}


HOLD = "hold the statistics: layer.eval() after each model.train(), or a FrozenBatchNorm2d"
AS_IN_PYTORCH = (
    "in PyTorch momentum is the share that comes in; in ONNX, Keras, Flax and minorm the share that is kept. Taken "
    "over as it stands, the statistics are those of the last batch or two, and change with it"
)
UPDATE_BN = "torch.optim.swa_utils.update_bn(loader, model)"
# (why, fix) for a model of PyTorch, in place of the texts above; why is None if it is the same.
PYTORCH: Mapping[str, tuple[str | None, str]] = {
    "stale_statistics": (None, f"{UPDATE_BN} computes them anew"),
    "untouched_statistics": (None, f"{UPDATE_BN} fills them in. Train with model.train()"),
    "momentum_convention": (
        AS_IN_PYTORCH,
        "layer.momentum = {usual:g}; statistics that have suffered: " + UPDATE_BN,
    ),
    "train_eval_gap": (
        None,
        f"mend the cause; where no layer stands out, {UPDATE_BN}. Compare the preprocessing, which looks the same",
    ),
    "frozen_norm_drifts": (None, HOLD),
    "variance_convention": (
        None,
        "a larger batch; or the variance that training divides by: layer.running_var *= {shrink:.3g}",
    ),
    "small_batch": (
        None,
        "a batch of {batch_for_10_percent:,} makes it 10 %; else torch.nn.GroupNorm or SyncBatchNorm, or " + HOLD,
    ),
    "batch_of_one": (None, "a larger batch_size; else torch.nn.GroupNorm, or " + HOLD),
    "large_mean": (
        None,
        "subtract the mean first: transforms.Normalize for inputs, bias=False in the layer before; or model.double()",
    ),
    "eps_underflows": (None, "eps=1e-5 in the layer, or keep the normalization in float32: layer.float()"),
    "folded_norm": (
        None,
        "to train on, load the weights from before fuse_conv_bn_eval or the export",
    ),
}


def words(name: str, numbers: Mapping[str, Any], framework: str = "minorm") -> Words:
    """Return the three texts of a finding, filled in with its numbers.

    `framework`, "minorm" or "pytorch", is where the model comes from.
    """
    text = WORDS[name]
    if framework == "pytorch" and name in PYTORCH:
        why, fix = PYTORCH[name]
        text = Words(text.seen, why or text.why, fix)
    given = dict(numbers)
    if name == "train_eval_gap":
        given["changes"] = changes(numbers)
    if name == "eps_swallows_variance":
        given["small"] = numbers["variance"] / 1000
    if name == "variance_convention":
        given["shrink"] = 1 / numbers["factor"]
    return Words(*(part.format(**given) for part in (text.seen, text.why, text.fix)))


def changes(numbers: Mapping[str, Any]) -> str:
    """Say how the predictions, the outputs, the loss and the accuracy change from the reference to evaluation."""
    parts = [] if "changed" not in numbers else [f"{numbers['changed']:.1%} of the predictions change"]
    parts.append(f"outputs move by {numbers['moved']:.2f} of their deviation")
    if "loss_evaluation" in numbers:
        parts.append(f"loss {numbers['loss_reference']:.3f} -> {numbers['loss_evaluation']:.3f}")
        parts.append(f"accuracy {numbers['accuracy_reference']:.1%} -> {numbers['accuracy_evaluation']:.1%}")
    return ", ".join(parts)
