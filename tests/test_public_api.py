"""The public names are a contract: what is listed here stays, with PyTorch's spelling and argument order."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn, optim
from minorm.nn.utils.parametrizations import weight_standardization


def names(text: str) -> list[str]:
    """The words of a text: a list that fits on the screen."""
    return text.split()


TOP = names("""
    Tensor tensor from_numpy from_dlpack as_tensor zeros ones empty full eye arange linspace rand randn randint randperm
    zeros_like ones_like full_like cat stack split where pad maximum minimum matmul exp log sqrt sin cos abs clip clamp
    gather sum mean var argmax flatten reshape transpose permute allclose no_grad enable_grad is_grad_enabled
    manual_seed set_num_threads get_num_threads save load show_config explain empty_cache no_stats_update
    topk sort argsort unique cumsum cumprod prod masked_fill masked_select nonzero scatter scatter_add index_select
    index_add take_along_dim norm dot mm bmm einsum tensordot outer narrow roll tril triu diag diagonal movedim meshgrid
    hstack vstack concat randn_like rand_like randint_like empty_like normal bernoulli multinomial inference_mode
    set_grad_enabled set_default_dtype get_default_dtype set_printoptions equal is_tensor device dtype Size utils data
    backends autograd diagnose Generator half float double short int long
    amp accelerator autocast compile cdist inf nan pi finfo iinfo LongTensor FloatTensor
    float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool nn optim functional cuda
""")

FUNCTIONAL = {
    "batch_norm": "x running_mean running_var weight=None bias=None training=False momentum=0.9 eps=1e-05",
    "instance_norm": (
        "x running_mean=None running_var=None weight=None bias=None use_input_stats=True momentum=0.9 eps=1e-05"
    ),
    "group_norm": "x num_groups weight=None bias=None eps=1e-05",
    "layer_norm": "x normalized_shape weight=None bias=None eps=1e-05",
    "rms_norm": "x normalized_shape weight=None eps=None",
    "mean_variance_norm": "x axes=(0, 2, 3) eps=1e-09",
    "normalization": "x scale=None bias=None axes=(2, 3) num_groups=1 eps=1e-05 compute_dtype=None",
    "filter_response_norm": "x weight=None bias=None eps=1e-06",
    "ghost_batch_norm": (
        "x running_mean running_var virtual_batch_size weight=None bias=None training=False momentum=0.9 eps=1e-05"
    ),
    "batch_renorm": (
        "x running_mean running_var weight=None bias=None training=False momentum=0.9 eps=1e-05 rmax=3.0 dmax=5.0"
    ),
    "local_response_norm": "x size alpha=0.0001 beta=0.75 k=1.0",
    "normalize": "x p=2.0 dim=1 eps=1e-12",
    "conv1d": "x weight bias=None stride=1 padding=0 dilation=1 groups=1",
    "conv2d": "x weight bias=None stride=1 padding=0 dilation=1 groups=1",
    "conv3d": "x weight bias=None stride=1 padding=0 dilation=1 groups=1",
    "conv_transpose2d": "x weight bias=None stride=1 padding=0 output_padding=0 groups=1 dilation=1",
    "linear": "x weight bias=None",
    "max_pool2d": "x kernel_size stride=None padding=0 dilation=1 ceil_mode=False return_indices=False",
    "avg_pool2d": (
        "x kernel_size stride=None padding=0 ceil_mode=False count_include_pad=True divisor_override=None dilation=1"
    ),
    "adaptive_avg_pool2d": "x output_size",
    "dropout": "x p=0.5 training=True inplace=False",
    "relu": "x inplace=False",
    "relu6": "x inplace=False",
    "leaky_relu": "x negative_slope=0.01 inplace=False",
    "elu": "x alpha=1.0 inplace=False",
    "gelu": "x approximate=none",
    "silu": "x inplace=False",
    "sigmoid": "x",
    "tanh": "x",
    "hardswish": "x inplace=False",
    "softmax": "x dim",
    "log_softmax": "x dim",
    "cross_entropy": None,
    "nll_loss": None,
    "mse_loss": None,
    "l1_loss": None,
    "binary_cross_entropy_with_logits": None,
}

LAYERS = names("""
    Module Parameter Sequential ModuleList ModuleDict Identity Flatten Dropout
    Linear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d
    MaxPool1d MaxPool2d MaxPool3d AvgPool1d AvgPool2d AvgPool3d AdaptiveAvgPool1d AdaptiveAvgPool2d
    BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d GroupNorm LayerNorm
    RMSNorm LocalResponseNorm MeanVarianceNorm Normalization
    GhostBatchNorm BatchRenorm1d BatchRenorm2d BatchRenorm3d FilterResponseNorm2d TLU FrozenBatchNorm2d
    ReLU ReLU6 LeakyReLU ELU GELU SiLU Sigmoid Tanh Softmax LogSoftmax Hardswish
    CrossEntropyLoss MSELoss NLLLoss BCEWithLogitsLoss L1Loss
""")

TENSOR = names("""
    shape dtype device grad requires_grad data ndim T mT is_leaf numpy item tolist detach backward retain_grad
    requires_grad_ to float double half cpu clone contiguous size dim numel sum mean var std amax amin max min argmax
    argmin reshape view flatten permute transpose unsqueeze squeeze expand repeat flip split chunk unbind gather
    exp log sqrt sin cos abs pow matmul clip clamp fill_ zero_ copy_ add_ sub_ mul_ div_ clip_ clamp_
    __iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __imod__ __ipow__ __iand__ __ior__ __ixor__
    __floordiv__ __mod__ __and__ __or__ __xor__ __invert__ __array__ __dlpack__ __dlpack_device__
""")

CUDA = names("""
    is_available device_count current_device set_device get_device_name synchronize empty_cache
    memory_stats memory_allocated memory_reserved mem_get_info
""")

MODULE = names("""
    parameters named_parameters buffers named_buffers state_dict load_state_dict train eval to freeze unfreeze
    register_buffer register_parameter named_modules modules named_children children zero_grad apply requires_grad_
""")


@pytest.mark.parametrize("name", TOP)
def test_top_level(name: str) -> None:
    assert hasattr(mn, name)


@pytest.mark.parametrize("name", CUDA)
def test_cuda(name: str) -> None:
    assert callable(getattr(mn.cuda, name))


@pytest.mark.parametrize("name", CUDA)
def test_cuda_has_torchs_names(name: str) -> None:
    torch = pytest.importorskip("torch")
    assert hasattr(torch.cuda, name)


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_functional(name: str) -> None:
    function = getattr(F, name)
    expected = FUNCTIONAL[name]
    if expected is None:
        return
    shown = []
    for p in inspect.signature(function).parameters.values():
        if p.kind is p.KEYWORD_ONLY:
            continue  # ours alone; PyTorch's callers never see them
        shown.append(p.name if p.default is p.empty else f"{p.name}={p.default}")
    assert " ".join(shown) == expected


def test_every_public_function_is_recorded_by_a_trace() -> None:
    for name, function in {**vars(F), **{name: getattr(F, name) for name in dir(F)}}.items():
        if inspect.isfunction(function) and not name.startswith("_"):
            assert hasattr(function, "__wrapped__"), f"F.{name} lacks @trace.operation: an export would not see it"


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str) -> None:
    assert inspect.isclass(getattr(nn, name))


@pytest.mark.parametrize("name", LAYERS)
def test_constructors_take_torchs_arguments_in_torchs_order(name: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = getattr(torch.nn, name, None)
    if theirs is None or name in ("Module", "Parameter", "Sequential", "ModuleList", "ModuleDict", "Identity"):
        pytest.skip("no constructor of torch to compare with")
    ours = list(inspect.signature(getattr(nn, name)).parameters)
    wanted = [p for p in inspect.signature(theirs).parameters if p in ours]
    assert [p for p in ours if p in wanted] == wanted


@pytest.mark.parametrize("name", TENSOR)
def test_tensor(name: str) -> None:
    assert hasattr(mn.ones(1, 1), name)


@pytest.mark.parametrize("name", MODULE)
def test_module(name: str) -> None:
    assert callable(getattr(nn.Module, name))


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_optimizers(name: str) -> None:
    optimizer = getattr(optim, name)([nn.Parameter(mn.ones(1))], lr=0.1)
    for method in ("zero_grad", "step", "state_dict", "load_state_dict", "add_param_group"):
        assert callable(getattr(optimizer, method))
    assert optimizer.param_groups[0]["lr"] == 0.1


@pytest.mark.parametrize("name", ["StepLR", "CosineAnnealingLR", "OneCycleLR"])
def test_schedules(name: str) -> None:
    assert inspect.isclass(getattr(optim.lr_scheduler, name))


def test_clipping() -> None:
    assert callable(nn.utils.clip_grad_norm_)


NORMS = {  # beyond PyTorch's: what API says of them, arguments and defaults
    nn.GhostBatchNorm: "num_features virtual_batch_size eps=1e-05 momentum=0.9 affine=True track_running_stats=True",
    nn.BatchRenorm2d: "num_features eps=1e-05 momentum=0.9 affine=True track_running_stats=True",
    nn.FilterResponseNorm2d: "num_features eps=1e-06",
    nn.TLU: "num_features",
    nn.FrozenBatchNorm2d: "num_features eps=1e-05",
    nn.accumulate_stats: "model",
    nn.utils.precise_bn: "model loader num_iters=None layerwise=False",
    nn.utils.freeze_norm: "model",
    weight_standardization: "module name=weight eps=1e-06",
}


@pytest.mark.parametrize("function", NORMS, ids=lambda f: f.__name__)
def test_norms_beyond_pytorch(function: Any) -> None:
    shown = [p.name if p.default is p.empty else f"{p.name}={p.default}"
             for p in inspect.signature(function).parameters.values()
             if p.kind is not p.KEYWORD_ONLY and p.name not in ("device", "dtype")]  # fmt: skip
    assert " ".join(shown) == NORMS[function]


@pytest.mark.parametrize("name", ["batch_norm", "instance_norm", "mean_variance_norm"])
def test_variance_by_name(name: str) -> None:
    assert inspect.signature(getattr(F, name)).parameters["variance"].default is None


def test_onnx() -> None:
    pytest.importorskip("onnx")
    import minorm.onnx as mo

    parameters = list(inspect.signature(mo.export).parameters)
    assert parameters[:3] == ["model", "args", "path"]
    assert set(parameters[3:]) >= {
        "opset_version",
        "training",
        "input_names",
        "output_names",
        "dynamic_axes",
        "verify",
    }
