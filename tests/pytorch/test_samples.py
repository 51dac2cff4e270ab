"""PyTorch's own samples of its layers and functions, through ours: results and gradients, in float64.

torch.testing._internal lists the samples of each (OpInfo, ModuleInfo). From long lists every n-th is taken. Samples
that PyTorch refuses, for example for a missing gradient, are passed over. A few names are random or take arguments that
only PyTorch has; they have separate tests.
"""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import minorm as mn

pytest.importorskip("torch")
pytest.importorskip("expecttest")
import torch

from tests.pytorch.twins.samples import compare, leaves, ours, tensors

MOST = 24  # samples of a name
FUNCTIONS = [
    name
    for name in dir(mn.functional)
    if name[0] != "_" and inspect.isfunction(getattr(mn.functional, name)) and hasattr(torch.nn.functional, name)
]
BY_THEIR_OWN_NAME = {"log_softmax", "sigmoid", "softmax", "tanh"}  # and not as nn.functional.softmax
LAYERS = [name for name in dir(mn.nn) if inspect.isclass(getattr(mn.nn, name)) and hasattr(torch.nn, name)]

# In PyTorch's lists under another name, or not at all: compared in tests/nn and tests/functional.
NOT_LISTED = {
    "affine_grid", "dropout1d", "fold", "gumbel_softmax", "lp_pool1d", "lp_pool2d", "lp_pool3d",
    "native_channel_shuffle", "one_hot", "upsample",
}  # fmt: skip
LAYERS_NOT_LISTED = {
    "Buffer", "Dropout", "Flatten", "Hardsigmoid", "Identity", "Module", "ModuleDict", "ModuleList", "Parameter",
    "Sequential", "SyncBatchNorm", "Unflatten",
    "AlphaDropout", "ChannelShuffle", "CosineSimilarity", "CrossMapLRN2d", "Dropout1d", "Dropout2d", "Dropout3d",
    "EmbeddingBag", "FeatureAlphaDropout", "Fold", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "PairwiseDistance",
    "ParameterDict", "ParameterList", "PixelShuffle", "PixelUnshuffle", "RNNBase", "RNNCellBase", "RReLU",
    "TransformerDecoder", "TripletMarginLoss", "TripletMarginWithDistanceLoss", "Unfold", "Upsample",
    "UpsamplingBilinear2d", "UpsamplingNearest2d",
}  # fmt: skip
COMPARED = [name for name in FUNCTIONS if name not in NOT_LISTED]
COMPARED_LAYERS = [name for name in LAYERS if name not in LAYERS_NOT_LISTED and not name.startswith("Lazy")]
SAMPLES = {"F": 1_200, "nn": 700}  # comparisons, at least; docs/names.md says the same
FROM_PYTORCH = {"triplet_margin_with_distance_loss": "distance_function"}  # an argument that is a function of PyTorch
PLAIN_TARGETS = {"KLDivLoss", "PoissonNLLLoss"}  # where PyTorch's gradient of the target is NaN, at 0 and below
# PyTorch's repr shows classes of PyTorch inside, or momentum of another meaning, or whether there is a bias.
OTHER_REPR = {
    "TransformerEncoderLayer", "TransformerEncoder", "TransformerDecoderLayer", "Transformer", "MultiheadAttention",
    "AvgPool1d", "GroupNorm", "LayerNorm",
    *(f"{kind}{n}d" for kind in ("BatchNorm", "InstanceNorm") for n in (1, 2, 3)),
}  # fmt: skip


BOUNDS = {"hardsigmoid": {"rtol": 1e-7}}  # PyTorch's slope is 1/6 in float32


def below_zero(name: str) -> Callable[[Any], bool]:
    return lambda sample: (sample.kwargs.get(name) or 0) < 0


# Samples that PyTorch computes, and we refuse with the function's name: see docs/differences.md.
REFUSED: dict[str, Callable[[Any], bool]] = {
    "avg_pool2d": lambda sample: sample.args[1:2] == ((),),
    "batch_norm": lambda sample: (
        sample.input.ndim < 2 or (sample.kwargs.get("momentum", 0) == -1 and sample.kwargs["training"])
    ),
    "group_norm": below_zero("eps"),
    "instance_norm": below_zero("momentum"),
    "layer_norm": below_zero("eps"),
    "normalize": lambda sample: sample.kwargs.get("p", 2.0) < 1 or sample.input.ndim == 0,
    "rms_norm": below_zero("eps"),
}


def some(samples: Any) -> list[Any]:
    """At most MOST of them, from all over the list."""
    all_of_them = list(samples)
    return all_of_them[:: -(-len(all_of_them) // MOST) or 1]


@pytest.fixture(scope="module")
def operators() -> dict[str, list[Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        database = importlib.import_module("torch.testing._internal.common_methods_invocations").op_db
    found: dict[str, list[Any]] = {}
    for info in database:
        if info.name.startswith("nn.functional.") or info.name in BY_THEIR_OWN_NAME:
            found.setdefault(info.name.removeprefix("nn.functional."), []).append(info)
    return found


@pytest.fixture(scope="module")
def modules() -> dict[str, Any]:
    database = importlib.import_module("torch.testing._internal.common_modules").module_db
    return {info.name.removeprefix("nn."): info for info in database}


def drawn(name: str, options: dict[str, Any]) -> bool:
    """Whether the result is drawn at random."""
    training = options.get("training", name in ("dropout", "dropout2d", "dropout3d"))
    return bool(options.get("dropout_p")) or (training and options.get("p", 0.5) not in (0, 1))


def function_samples(name: str, info: Any) -> Iterator[Any]:
    """Yield the samples of F.<name>."""
    torch.manual_seed(0)
    for sample in some(info.sample_inputs("cpu", torch.float64, requires_grad=True)):
        if not drawn(name, sample.kwargs):
            yield sample


def layer_samples(name: str, info: Any, training: bool) -> Iterator[Any]:
    """Yield the samples of nn.<name> in one of its modes."""
    torch.manual_seed(0)
    options = {"device": "cpu", "dtype": torch.float64, "requires_grad": True, "training": training}
    for sample in some(info.module_inputs_func(info, **options)):
        if not sample.constructor_input.kwargs.get("proj_size"):  # an error: docs/differences.md
            yield sample


def modes(info: Any) -> tuple[bool, ...]:
    return (True, False) if info.train_and_eval_differ else (True,)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_as_many_samples_as_the_page_says(operators: dict[str, list[Any]], modules: dict[str, Any]) -> None:
    functions = [(name, info) for name in COMPARED for info in operators[name]]
    layers = [(name, modules[name], training) for name in COMPARED_LAYERS for training in modes(modules[name])]
    found = {
        "F": sum(1 for name, info in functions for sample in function_samples(name, info)
                 if name not in REFUSED or not REFUSED[name](sample)),
        "nn": sum(1 for one in layers for _ in layer_samples(*one)),
    }  # fmt: skip
    assert all(found[family] >= least for family, least in SAMPLES.items()), found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", COMPARED)
def test_functions(name: str, operators: dict[str, list[Any]]) -> None:
    compared = 0
    for info in operators[name]:
        for sample in function_samples(name, info):
            arguments, options = leaves([sample.input, *sample.args]), leaves(sample.kwargs)
            try:
                expected = info.op(*arguments, **options)
            except RuntimeError:
                continue
            mine, settings = ours(arguments), ours(options)
            if name.startswith("embedding"):
                mine[0], mine[1] = mine[1], mine[0]
                arguments[0], arguments[1] = arguments[1], arguments[0]
            if name in FROM_PYTORCH and FROM_PYTORCH[name] in settings:
                settings[FROM_PYTORCH[name]] = mn.nn.PairwiseDistance()
            if name in REFUSED and REFUSED[name](sample):
                with pytest.raises((ValueError, TypeError, IndexError), match=f"^{name}: "):
                    getattr(mn.functional, name)(*mine, **settings)
                continue
            result = getattr(mn.functional, name)(*mine, **settings)
            sides = (mine, settings), (arguments, options)
            compare(result, expected, sides, f"F.{name} {info.variant_test_name}", **BOUNDS.get(name, {}))
            compared += 1
    assert compared


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", COMPARED_LAYERS)
def test_layers(name: str, modules: dict[str, Any]) -> None:
    info, compared = modules[name], 0
    for training in modes(info):
        for sample in layer_samples(name, info, training):
            given, settings = sample.constructor_input.args, dict(sample.constructor_input.kwargs)
            settings.pop("device", None)
            theirs = info.module_cls(*given, **settings).double().train(training)
            arguments, more = leaves(list(sample.forward_input.args)), leaves(sample.forward_input.kwargs)
            if list(more) == ["input"]:
                arguments, more = [more["input"]], {}  # by position, as our layers call it x
            for i, tensor in enumerate(tensors((arguments, more), torch.Tensor)):
                if tensor.is_floating_point():
                    tensor.requires_grad_(i == 0 or (name not in PLAIN_TARGETS and name != "SoftMarginLoss"))
            layer = getattr(mn.nn, name)(*built(given), **built(settings)).double().train(training)
            layer.load_state_dict(theirs.state_dict())
            assert list(layer.state_dict()) == list(theirs.state_dict())
            expected = theirs(*arguments, **more)
            mine, options_of_mine = ours(arguments), ours(more)
            result = layer(*mine, **options_of_mine)
            sides = (
                (mine, options_of_mine, list(layer.parameters())),
                (arguments, more, list(theirs.parameters())),
            )
            compare(result, expected, sides, f"nn.{name} {sample.desc}")
            assert name in OTHER_REPR or repr(layer) == repr(theirs)
            compared += 1
    assert compared


def built(value: Any) -> Any:
    """Convert the arguments of a constructor: our layers and functions for PyTorch's."""
    if isinstance(value, dict):
        return {key: built(item) for key, item in value.items()}
    if type(value) in (tuple, list):
        return type(value)(map(built, value))
    if isinstance(value, torch.nn.TransformerEncoderLayer):
        return mn.nn.TransformerEncoderLayer(value.linear1.in_features, value.self_attn.num_heads,
                                              value.linear1.out_features, value.dropout.p, built(value.activation),
                                              batch_first=value.self_attn.batch_first, norm_first=value.norm_first,
                                              bias=value.linear1.bias is not None)  # fmt: skip
    if isinstance(value, torch.nn.Module):
        return getattr(mn.nn, type(value).__name__)()
    if callable(value) and getattr(value, "__name__", "") in ("gelu", "relu"):
        return getattr(mn.functional, value.__name__)
    return ours(value)
