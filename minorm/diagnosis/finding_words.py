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
        "the running statistics differ from the data by {offset:.2f} (up to {limit:.2f} is usual), in channel "
        "{channel} by {channel_offset:.2f}",
        "evaluation normalizes with the running mean and variance, but they do not describe the data that the layer "
        "now gets. Possible causes are too few training steps, weights that changed afterwards, other data, or a "
        "wrong momentum",
        f"{FORMULA} measures them anew, and so does minorm doctor MODEL --fix precise_bn --out FILE",
    ),
    "untouched_statistics": Words(
        "the running mean is 0 and the running variance 1 in all {channels} channels: no batch has updated them",
        "in evaluation mode this layer does not normalize at all. The layer was frozen or in evaluation mode while "
        "the model trained, or its statistics were never saved",
        f"{FORMULA} measures them, and so does minorm doctor MODEL --fix precise_bn --out FILE. Train with "
        "model.train()",
    ),
    "momentum_convention": Words(
        "momentum is {momentum:g}, so a step keeps {kept:.0%} of the old statistics",
        "in minorm and ONNX momentum is the share of the old statistics, in PyTorch the share of the new ones. With "
        "PyTorch's number, the statistics are almost those of the last batch, and change with every batch",
        "set layer.momentum = {usual:g}, and measure the statistics anew: " + FORMULA,
    ),
    "frozen_norm_drifts": Words(
        "scale and bias do not require grad, but the layer is in training mode, so half of the running statistics are "
        "replaced after {half_after} batches",
        "requires_grad=False only stops the optimizer. In training mode each forward pass still updates the running "
        "mean and variance, so the layer changes although it was meant to stay as it is",
        "nn.utils.freeze_norm(model) or layer.freeze(), which also keep the statistics unchanged",
    ),
    "saved_in_training": Words(
        "the graph has this layer in training mode, with running statistics of {channels} channels",
        "a runtime then normalizes each batch by itself: the output for an image depends on the images beside it, and "
        "the running statistics are not used. The model was exported before model.eval(), or for further training",
        "for inference, export with training=False (PyTorch: after model.eval()); a loaded graph: model.eval(), then "
        "minorm.onnx.export",
    ),
    "variance_convention": Words(
        "the running variance divides by N - 1, not by N: with {values} values per channel in a batch, it is "
        "{factor:.2f} times the variance that training uses ({ratio:.2f} was measured)",
        "training normalizes by the variance with divisor N. The running variance has divisor N - 1 in PyTorch, and N "
        "in minorm, ONNX, Keras and Flax. With few values per channel, outputs are smaller in evaluation than in "
        "training, and the statistics change if the training continues in another framework",
        "use a larger batch, or measure the variance with divisor N: " + FORMULA,
    ),
    "eps_underflows": Words(
        "eps is {eps:.3g}, which becomes {in_float16:.3g} in float16; the layer's numbers are {type}",
        "the smallest number of float16 is 6e-8. A runtime that adds eps in float16 divides by sqrt(variance + 0), "
        "which is 0 for a channel with a tiny variance",
        "set eps=1e-5 in the layer, or compute the normalization in float32 (compute_dtype=mn.float32)",
    ),
    "skipped_batches": Words(
        "{skipped} batches, {share:.1%} of all, were left out of the running statistics, because their mean or "
        "variance was NaN, infinite or too large",
        "a single NaN would stay in the running statistics for ever, so such batches are left out. In float16 a few "
        "are usual; if there are many, evaluation normalizes with the statistics of the remaining batches",
        "look for NaN and infinity in the data, use mn.autocast with bfloat16, which has the range of float32, or use "
        "a smaller learning rate",
    ),
    "train_eval_gap": Words(
        "{changes}",
        "the same images give other predictions in evaluation, with the running statistics, than with the statistics "
        "of their batch. So part of what training has learned is lost",
        f"repair the cause; if no layer stands out, use {FORMULA}. Images that are scaled in another way than in "
        "training have the same effect, so compare the preprocessing",
    ),
    "small_batch": Words(
        "in batches of {batch_size} samples the output has an error of {error:.0%} of a standard deviation, the mean "
        "of {mean_error:.0%}, and the variance of {variance_error:.0%}",
        "the statistics come from the few images of a batch, so training has noise that evaluation does not have. "
        "More pixels do not help, because the pixels of an image are similar",
        "batches of {batch_for_10_percent:,} have an error of 10 %; else use nn.GroupNorm, use nn.SyncBatchNorm "
        "on several ranks, or freeze the statistics: nn.utils.freeze_norm(model)",
    ),
    "batch_of_one": Words(
        "batches have one image, so each image is normalized by itself",
        "in training this is an instance normalization, in evaluation it is not, so the network gets inputs unlike "
        "those in training. After a global pooling, all outputs equal the bias",
        "use a larger batch_size or nn.GroupNorm, or freeze the statistics: nn.utils.freeze_norm(model)",
    ),
    "large_mean": Words(
        "the mean is {mean:.4g} and the standard deviation {deviation:.3g}, so E[x^2] - E[x]^2 would lose "
        "{digits_lost:.1f} digits",
        "float32 has 7 digits. minorm loses none, because it subtracts the mean before it squares. A runtime that "
        "computes E[x^2] - E[x]^2 loses them, and gets another variance, or a negative one",
        "subtract the mean first: transforms.Normalize for inputs, bias=False in the layer before; or compute in "
        "float64: compute_dtype=mn.float64",
    ),
    "eps_swallows_variance": Words(
        "eps is {eps:.3g}, which is {eps_over_variance:.2g} times the median variance, {variance:.3g}",
        "the layer divides by sqrt(variance + eps), which is nearly sqrt(eps) here. So the outputs are far smaller "
        "than 1, and depend on the scale of the input",
        "scale the input up (images from 0 to 1, not from 0 to 1/255), or set eps={small:.1g} in the layer",
    ),
    "vanished_scale": Words(
        "{channels} of {of} scales are below a thousandth of the usual scale, {usual:.3g}; the smallest scale is "
        "{smallest:.2g}, in channel {channel}",
        "the output of such a channel is its bias for every image, and the layers before it get no gradient through "
        "this channel",
        "exclude scales and biases from weight decay (a separate parameter group with weight_decay=0), or prune the "
        "channels",
    ),
    "dead_channel": Words(
        "{channels} of {of} channels of {activation} are 0 on all images; the first is channel {channel}",
        "if an activation is 0 for every image, no gradient flows back, so the channel does not recover by itself",
        "use a smaller learning rate with warm-up or nn.LeakyReLU, or prune the channels. A few dead channels are "
        "usual",
    ),
    "saturated_channel": Words(
        "{channels} of {of} channels of {activation} are in the flat part of the curve for 90 % of their values; "
        "{share:.0%} of all values are there",
        "in the flat part the slope is below a hundredth of its largest value, so hardly any gradient passes",
        "normalize before the activation, or use smaller weights, because the layer before the activation gives "
        "values that are too large",
    ),
    "undone_norm": Words(
        "without {earlier} the output would change by only {change:.1%} of its standard deviation",
        "this normalization undoes the normalization before it: both have the same statistics, and there is only "
        "pooling between them. The earlier normalization costs time and adds gradient noise, and only the sign of its "
        "scale matters",
        "remove {earlier}",
    ),
    "folded_norm": Words(
        "over the channels, the bias cancels the mean of the product: correlation {correlation:.2f}, slope {slope:.2f}",
        "this is typical of a BatchNorm that an export has folded into the weights. The layer no longer exists: that "
        "is fine for inference, but further training has no normalization",
        "for further training, use the model as it was before folding: PyTorch's export with "
        "training=TrainingMode.PRESERVE, or dynamo=True, optimize=False",
    ),
}


HOLD = "keep the statistics unchanged: layer.eval() after each model.train(), or a FrozenBatchNorm2d"
AS_IN_PYTORCH = (
    "in PyTorch momentum is the share of the new statistics; in ONNX, Keras, Flax and minorm it is the share of the "
    "old statistics. With the number of another framework, the statistics are almost those of the last batch, and "
    "change with every batch"
)
UPDATE_BN = "torch.optim.swa_utils.update_bn(loader, model)"
# (why, fix) for a model of PyTorch, in place of the texts above; why is None if it is the same.
PYTORCH: Mapping[str, tuple[str | None, str]] = {
    "stale_statistics": (None, f"{UPDATE_BN} measures them anew"),
    "untouched_statistics": (None, f"{UPDATE_BN} measures them. Train with model.train()"),
    "momentum_convention": (
        AS_IN_PYTORCH,
        "set layer.momentum = {usual:g}, and measure the statistics anew: " + UPDATE_BN,
    ),
    "train_eval_gap": (
        None,
        (
            f"repair the cause; if no layer stands out, use {UPDATE_BN}. Images that are scaled in another way than in "
            "training have the same effect, so compare the preprocessing"
        ),
    ),
    "frozen_norm_drifts": (None, HOLD),
    "variance_convention": (
        None,
        "use a larger batch, or convert the variance to divisor N: layer.running_var *= {shrink:.3g}",
    ),
    "small_batch": (
        None,
        "batches of {batch_for_10_percent:,} have an error of 10 %; else use torch.nn.GroupNorm or SyncBatchNorm, or "
        + HOLD,
    ),
    "batch_of_one": (None, "use a larger batch_size or torch.nn.GroupNorm, or " + HOLD),
    "large_mean": (
        None,
        "subtract the mean first: transforms.Normalize for inputs, bias=False in the layer before; or model.double()",
    ),
    "eps_underflows": (None, "set eps=1e-5 in the layer, or keep the normalization in float32: layer.float()"),
    "folded_norm": (
        None,
        "for further training, load the weights from before fuse_conv_bn_eval or the export",
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
    parts.append(f"outputs move by {numbers['moved']:.2f} standard deviations")
    if "loss_evaluation" in numbers:
        parts.append(f"loss {numbers['loss_reference']:.3f} -> {numbers['loss_evaluation']:.3f}")
        parts.append(f"accuracy {numbers['accuracy_reference']:.1%} -> {numbers['accuracy_evaluation']:.1%}")
    return ", ".join(parts)
