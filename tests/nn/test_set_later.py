"""An attribute of a layer that is set later counts as if the constructor had been given it, or is an error.

PyTorch's programs change layers that way: `model.drop.p = 0.1`, `conv.padding = 1`, `bn.momentum = 0.5`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn

Inputs = Callable[[], tuple[Any, ...]]


def r(*shape: int, low: float = -2.0, high: float = 2.0) -> Any:
    """Numbers from low to high, the same at each call."""
    return mn.tensor(np.random.default_rng(sum(shape)).uniform(low, high, shape).astype(np.float32), requires_grad=True)


def of(*shape: int) -> Inputs:
    return lambda: (r(*shape),)


def whole(*shape: int, top: int = 3) -> Any:
    return mn.tensor(np.random.default_rng(sum(shape)).integers(0, top, shape))


def pair(*shape: int, low: float = -2.0) -> Inputs:
    return lambda: (r(*shape, low=low), r(*shape[::-1], low=low).reshape(*shape).detach())


def signs(*shape: int) -> Any:
    return mn.tensor(np.where(np.arange(int(np.prod(shape))) % 3, 1.0, -1.0).astype(np.float32).reshape(shape))


def doubled(x: Any) -> Any:
    return x * 2


# By class: the arguments of its constructor, the inputs of a call, and other values for the arguments.
CASES: dict[str, tuple[dict[str, Any], Inputs, dict[str, Any]]] = {}


def case(names: str, made: dict[str, Any], inputs: Inputs, **other: Any) -> None:
    for name in names.split():
        CASES[name] = (made, inputs, other)


POSITIONS = {1: (2, 4, 8), 2: (2, 4, 8, 8), 3: (2, 4, 8, 8, 8)}
NORM = {"eps": 0.5, "bias": None, "affine": False, "num_features": 2, "compute_dtype": mn.float64}
RUNNING = {**NORM, "momentum": 0.75, "unbiased_running_var": True, "track_running_stats": False, "backend": None,
           "update_nonfinite": True}  # fmt: skip
for rank, shape in POSITIONS.items():
    x = of(*shape)
    case(f"BatchNorm{rank}d", {"num_features": 4}, x, variance="welford", **RUNNING)
    case(f"BatchRenorm{rank}d", {"num_features": 4}, x, rmax=2.0, dmax=3.0, **RUNNING)
    made = {"num_features": 4, "affine": True, "track_running_stats": True}
    case(f"InstanceNorm{rank}d", made, x, variance="welford", **RUNNING)
    conv = {"in_channels": 4, "out_channels": 6, "kernel_size": 3}
    changes = {
        "in_channels": 2,
        "out_channels": 2,
        "kernel_size": 1,
        "stride": 2,
        "dilation": 2,
        "groups": 2,
        "bias": None,
    }
    case(f"Conv{rank}d", conv, x, padding=1, padding_mode="reflect", **changes)
    case(f"ConvTranspose{rank}d", {**conv, "stride": 2}, x, padding=1, output_padding=1, padding_mode="reflect",
         **{**changes, "stride": 3})  # fmt: skip
    pool = {"kernel_size": 3, "stride": 1, "padding": 1, "ceil_mode": True}
    case(f"MaxPool{rank}d", {"kernel_size": 2, "stride": 2}, x, dilation=2, return_indices=True, **pool)
    average = pool | {"count_include_pad": False}
    case(f"AvgPool{rank}d", {"kernel_size": 2, "padding": 1, "stride": 2}, x,
         **(average if rank == 1 else average | {"divisor_override": 3}))  # fmt: skip
    case(f"LPPool{rank}d", {"norm_type": 2.0, "kernel_size": 3}, lambda shape=shape: (r(*shape, low=0.1),),
         norm_type=3.0, kernel_size=2, stride=2, ceil_mode=True)  # fmt: skip
    case(f"AdaptiveAvgPool{rank}d", {"output_size": 2}, x, output_size=3)
    case(f"AdaptiveMaxPool{rank}d", {"output_size": 2}, x, output_size=3, return_indices=True)
    places = mn.tensor(np.tile(np.arange(0, 4, 2), (2, 4, 1)).reshape(2, 4, 2, *(1,) * (rank - 1)))
    case(f"MaxUnpool{rank}d", {"kernel_size": 2, "stride": 2},
         lambda rank=rank, places=places: (r(2, 4, 2, *(1,) * (rank - 1)), places),
         kernel_size=3, stride=3, padding=1)  # fmt: skip
    for kind in ("Circular", "Reflection", "Replication", "Zero"):
        case(f"{kind}Pad{rank}d", {"padding": 1}, x, padding=2)
    case(f"ConstantPad{rank}d", {"padding": 1, "value": 1.0}, x, padding=2, value=3.0)
    case(f"Dropout{rank}d", {"p": 0.5}, x, p=0.25, inplace=True)

case("SyncBatchNorm", {"num_features": 4}, of(4, 4, 3), variance="welford", process_group=None, **RUNNING)
case("GhostBatchNorm", {"num_features": 4, "virtual_batch_size": 2}, of(6, 4, 3), virtual_batch_size=3, **RUNNING)
case("GroupNorm", {"num_groups": 2, "num_channels": 4}, of(2, 4, 3), num_groups=4, num_channels=2, per_group=True,
     **{name: value for name, value in NORM.items() if name != "num_features"})  # fmt: skip
case("LayerNorm", {"normalized_shape": 4}, of(2, 3, 4), normalized_shape=(3, 4), eps=0.5, elementwise_affine=False,
     bias=None, compute_dtype=mn.float64)  # fmt: skip
case("RMSNorm", {"normalized_shape": 4}, of(2, 3, 4), normalized_shape=(3, 4), eps=0.5, elementwise_affine=False,
     compute_dtype=mn.float64)  # fmt: skip
case("FilterResponseNorm2d FrozenBatchNorm2d", {"num_features": 4}, of(2, 4, 3, 3), num_features=2, eps=0.5,
     compute_dtype=mn.float64)  # fmt: skip
case("TLU", {"num_features": 4}, of(2, 4, 3, 3), num_features=2)
case("LocalResponseNorm CrossMapLRN2d", {"size": 3}, of(2, 5, 3, 3), size=5, alpha=2.0, beta=0.5, k=3.0)
case("MeanVarianceNorm", {}, of(2, 4, 3, 3), axes=(2, 3), eps=0.5, compute_dtype=mn.float64, variance="onnx")
case("Normalization", {"scale_shape": (1, 4, 1, 1)}, of(2, 4, 3, 3), scale_shape=(1, 2, 1, 1), axes=(1, 2, 3),
     num_groups=2, eps=0.5, compute_dtype=mn.float64)  # fmt: skip

case("Linear", {"in_features": 4, "out_features": 3}, of(2, 4), in_features=2, out_features=2, bias=None)
case("Bilinear", {"in1_features": 4, "in2_features": 3, "out_features": 2}, lambda: (r(2, 4), r(2, 3)),
     in1_features=2, in2_features=2, out_features=3, bias=None)  # fmt: skip
case("Embedding", {"num_embeddings": 5, "embedding_dim": 4}, lambda: (mn.tensor([[0, 1, 1, 3]]),), num_embeddings=2,
     embedding_dim=2, padding_idx=1, max_norm=0.5, norm_type=1.0, scale_grad_by_freq=True, sparse=True)  # fmt: skip
case("EmbeddingBag", {"num_embeddings": 5, "embedding_dim": 4}, lambda: (mn.tensor([[0, 1, 1, 3]]),), num_embeddings=2,
     embedding_dim=2, padding_idx=1, max_norm=0.5, norm_type=1.0, scale_grad_by_freq=True, sparse=True, mode="sum",
     include_last_offset=True)  # fmt: skip

case("Dropout AlphaDropout FeatureAlphaDropout", {"p": 0.5}, of(2, 4, 8), p=0.25, inplace=True)
case("StochasticDepth", {"p": 0.5, "mode": "row"}, of(8, 4), p=0.25, mode="batch")
case("Mish ReLU ReLU6 SELU SiLU Hardsigmoid Hardswish", {}, of(3, 4), inplace=True)
case("LogSigmoid Sigmoid Softsign Tanh Tanhshrink Identity", {}, of(3, 4))
case("Softmax2d", {}, of(3, 4, 2, 2))
case("CELU ELU", {}, of(3, 4), alpha=2.0, inplace=True)
case("GELU", {}, of(3, 4), approximate="tanh")
case("GLU", {}, of(4, 4), dim=0)
case("Hardshrink Softshrink", {}, of(3, 4), lambd=1.0)
case("Hardtanh", {}, of(3, 4), min_val=-0.5, max_val=0.5, inplace=True)
case("LeakyReLU", {}, of(3, 4), negative_slope=0.5, inplace=True)
case("PReLU", {}, of(3, 4), num_parameters=4, init=0.5)
case("RReLU", {}, of(3, 4), lower=0.2, upper=0.9, inplace=True)
case("Softmax LogSoftmax Softmin", {"dim": 1}, of(3, 4), dim=0)
case("Softplus", {}, of(3, 4), beta=2.0, threshold=1.0)
case("Threshold", {"threshold": 0.5, "value": 1.0}, of(3, 4), threshold=1.0, value=2.0, inplace=True)

case("ChannelShuffle", {"groups": 2}, of(1, 8, 2), groups=4)
case("CosineSimilarity", {}, pair(3, 4), dim=0, eps=10.0)
case("PairwiseDistance", {}, pair(3, 4), p=1.0, eps=0.5, keepdim=True)
case("Flatten", {}, of(2, 3, 4, 2), start_dim=2, end_dim=2)
case("Unflatten", {"dim": 1, "unflattened_size": (2, 2)}, of(4, 4), dim=0, unflattened_size=(1, 4))
case("Fold", {"output_size": (4, 4), "kernel_size": 2, "stride": 2}, of(1, 8, 4), output_size=(5, 5), kernel_size=1,
     dilation=3, padding=1, stride=1)  # fmt: skip
case("Unfold", {"kernel_size": 2}, of(1, 2, 4, 4), kernel_size=3, dilation=2, padding=1, stride=2)
case("PixelShuffle", {"upscale_factor": 2}, of(1, 16, 2, 2), upscale_factor=4)
case("PixelUnshuffle", {"downscale_factor": 2}, of(1, 1, 4, 4), downscale_factor=4)
case("Upsample", {"scale_factor": 2.0, "mode": "bilinear"}, of(1, 2, 3, 3), size=(4, 4), scale_factor=3.0,
     mode="bicubic", align_corners=True, recompute_scale_factor=True)  # fmt: skip
case("UpsamplingBilinear2d UpsamplingNearest2d", {"scale_factor": 2.0}, of(1, 2, 3, 3), size=(4, 4), scale_factor=3.0)

RECURRENT = {"input_size": 2, "hidden_size": 2, "num_layers": 2, "bias": False, "batch_first": True, "dropout": 0.5,
             "bidirectional": True}  # fmt: skip
case("GRU LSTM", {"input_size": 4, "hidden_size": 3, "num_layers": 2}, of(5, 2, 4), proj_size=2,
     **{**RECURRENT, "num_layers": 1})  # fmt: skip
case("RNN", {"input_size": 4, "hidden_size": 3, "num_layers": 2}, of(5, 2, 4), nonlinearity="relu",
     **{**RECURRENT, "num_layers": 1})  # fmt: skip
case("GRUCell LSTMCell", {"input_size": 4, "hidden_size": 3}, of(2, 4), input_size=2, hidden_size=2, bias=False)
case("RNNCell", {"input_size": 4, "hidden_size": 3}, of(2, 4), input_size=2, hidden_size=2, bias=False,
     nonlinearity="relu")  # fmt: skip

BLOCK = {"d_model": 4, "nhead": 2, "dim_feedforward": 8, "dropout": 0.0}
BLOCKS = {"d_model": 2, "nhead": 1, "dim_feedforward": 4, "dropout": 0.5, "activation": "gelu", "layer_norm_eps": 0.5,
          "batch_first": True, "norm_first": True, "bias": False}  # fmt: skip
case("MultiheadAttention", {"embed_dim": 4, "num_heads": 2}, lambda: (r(5, 2, 4), r(5, 2, 4), r(5, 2, 4)), embed_dim=2,
     num_heads=1, dropout=0.5, bias=False, add_bias_kv=True, add_zero_attn=True, kdim=2, vdim=2,
     batch_first=True)  # fmt: skip
case("TransformerEncoderLayer", BLOCK, of(5, 2, 4), **BLOCKS)
case("TransformerDecoderLayer", BLOCK, lambda: (r(5, 2, 4), r(5, 2, 4)), **BLOCKS)
case("Transformer", {**BLOCK, "num_encoder_layers": 1, "num_decoder_layers": 1}, lambda: (r(5, 2, 4), r(5, 2, 4)),
     num_encoder_layers=2, num_decoder_layers=2, custom_encoder=None, custom_decoder=None, **BLOCKS)  # fmt: skip

REDUCED = {"reduction": "sum"}
PROBABLE: Inputs = lambda: (r(3, 4, low=0.1, high=0.9), signs(3, 4) * 0.5 + 0.5)  # noqa: E731
case("BCELoss", {}, PROBABLE, weight=mn.full((4,), 2.0), **REDUCED)
case("BCEWithLogitsLoss", {}, PROBABLE, weight=mn.full((4,), 2.0), pos_weight=mn.full((4,), 3.0), **REDUCED)
case("CTCLoss", {}, lambda: (mn.log_softmax(r(6, 2, 4), 2), whole(2, 2, top=2) + 1, mn.tensor([6, 6]),
     mn.tensor([2, 2])), blank=3, reduction="sum", zero_infinity=True)  # fmt: skip
case("CosineEmbeddingLoss", {}, lambda: (r(3, 4), r(4, 3).reshape(3, 4), signs(3)), margin=0.5, **REDUCED)
case("CrossEntropyLoss", {}, lambda: (r(5, 3), whole(5)), weight=mn.tensor([1.0, 2.0, 3.0]), ignore_index=1,
     label_smoothing=0.25, **REDUCED)  # fmt: skip
case("NLLLoss", {}, lambda: (r(5, 3), whole(5)), weight=mn.tensor([1.0, 2.0, 3.0]), ignore_index=1, **REDUCED)
case("FocalLoss", {}, lambda: (r(5, 3), whole(5)), weight=mn.tensor([1.0, 2.0, 3.0]), gamma=1.0, ignore_index=1,
     label_smoothing=0.25, **REDUCED)  # fmt: skip
case("DiceLoss", {}, lambda: (r(5, 3), whole(5)), smooth=0.5, ignore_index=1, **REDUCED)
case("GaussianNLLLoss", {}, lambda: (r(3, 4), r(4, 3).reshape(3, 4), r(3, 4, low=0.1)), full=True, eps=1.5, **REDUCED)
case("HingeEmbeddingLoss", {}, lambda: (r(3, 4), signs(3, 4)), margin=0.5, **REDUCED)
case("HuberLoss", {}, pair(3, 4), delta=0.5, **REDUCED)
case("KLDivLoss", {}, pair(3, 4, low=0.1), log_target=True, **REDUCED)
case("L1Loss MSELoss", {}, pair(3, 4), **REDUCED)
case("MarginRankingLoss", {}, lambda: (r(5), r(6)[:5], signs(5)), margin=0.5, **REDUCED)
case("MultiLabelMarginLoss", {}, lambda: (r(2, 3), mn.tensor([[0, 2, -1], [1, -1, -1]])), **REDUCED)
case("MultiLabelSoftMarginLoss", {}, PROBABLE, weight=mn.full((4,), 2.0), **REDUCED)
case("MultiMarginLoss", {}, lambda: (r(5, 3), whole(5)), p=2, margin=0.5, weight=mn.tensor([1.0, 2.0, 3.0]), **REDUCED)
case("PoissonNLLLoss", {}, pair(3, 4, low=0.1), log_input=False, full=True, eps=0.5, **REDUCED)
case("SmoothL1Loss", {}, pair(3, 4), beta=0.5, **REDUCED)
case("SoftMarginLoss", {}, lambda: (r(3, 4), signs(3, 4)), **REDUCED)
TRIPLE: Inputs = lambda: (r(3, 4), r(4, 3).reshape(3, 4), r(2, 6).reshape(3, 4))  # noqa: E731
case("TripletMarginLoss", {}, TRIPLE, margin=3.0, p=1.0, eps=0.5, swap=True, **REDUCED)
case("TripletMarginWithDistanceLoss", {}, TRIPLE, distance_function=lambda a, b: (a - b).abs().sum(1), margin=3.0,
     swap=True, **REDUCED)  # fmt: skip

# Containers and base classes: they have no arguments that are attributes.
WITHOUT = {
    "Module",
    "ModuleDict",
    "ModuleList",
    "ParameterDict",
    "ParameterList",
    "Sequential",
    "RNNBase",
    "RNNCellBase",
}
WITHOUT |= {"TransformerEncoder", "TransformerDecoder"}  # test_stacks below
# Where an argument is taken, and no attribute has its name, assigning one is assigning something new.
UNKEPT = {"device", "dtype", "_weight", "_freeze", "args", "kwargs", "options"}


def layers() -> list[str]:
    kinds = {name: getattr(nn, name) for name in dir(nn)}
    return [name for name, kind in kinds.items() if inspect.isclass(kind) and issubclass(kind, nn.Module)]


def made(name: str, **arguments: Any) -> Any:
    layer = getattr(nn, name)(**arguments)
    rng = np.random.default_rng(0)
    for parameter in layer.parameters():
        parameter.data = mn.tensor(rng.uniform(0.5, 1.5, parameter.shape), dtype=parameter.dtype)
    return layer


def outcome(layer: Any, inputs: Inputs) -> tuple[list[Any], str]:
    """Return the layer's results in training and in evaluation, its gradients, its buffers, and its repr."""
    found = []
    for training in (True, False):
        mn.manual_seed(0)
        args = inputs()
        result = layer.train(training)(*args)
        parts = result if isinstance(result, tuple) else (result,)
        flat = [y for part in parts for y in (part if isinstance(part, tuple) else (part,))]
        for y in flat:
            if y.requires_grad:
                (y * y).sum().backward(retain_graph=True)
        found += [y.numpy() for y in flat]
        found += [x.grad.numpy() for x in (*args, *layer.parameters()) if x.grad is not None]
    return found + [buffer.numpy() for buffer in layer.buffers()], f"{layer}, {list(layer.state_dict())}"


# False later stops the updates alone, as in PyTorch: evaluation goes on with what there is (norm/test_base.py).
OTHERWISE = {"track_running_stats"}
CHANGES = [(name, key) for name, (_, _, other) in CASES.items() for key in other if key not in OTHERWISE]


@pytest.mark.parametrize(("name", "attribute"), CHANGES, ids=lambda value: value)
def test_an_attribute_counts_as_the_argument_does(name: str, attribute: str) -> None:
    arguments, inputs, other = CASES[name]
    value = other[attribute]
    later = made(name, **arguments)
    if not hasattr(later, attribute):
        return  # assigning it is assigning something new
    try:
        setattr(later, attribute, value)
        found, shown = outcome(later, inputs)
    except (AttributeError, TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        if not (attribute in str(error) or name in str(error) or "expected" in str(error)):
            raise
        return
    first = made(name, **{**arguments, attribute: False if attribute == "bias" else value})
    want, want_shown = outcome(first, inputs)
    assert shown == want_shown
    assert len(found) == len(want)
    for a, b in zip(found, want, strict=True):
        np.testing.assert_array_equal(a, b)


def test_each_layer_and_each_of_its_arguments_is_tried() -> None:
    assert {name for name in layers() if not name.startswith("Lazy")} == CASES.keys() | WITHOUT
    for name, (arguments, _, other) in CASES.items():
        kept = inspect.signature(getattr(nn, name).__init__).parameters.keys() - {"self"} - UNKEPT
        assert kept - {"backend", "process_group"} <= other.keys() | ({"backend"} & kept), (name, kept - other.keys())
        assert arguments.keys() <= kept
