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
    BoolTensor ByteTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor ShortTensor __version__
    absolute accelerator add addcdiv addcmul addmm all amp any arctan argwhere atan autocast baddbmm bincount
    bitwise_and bitwise_not bitwise_or bitwise_xor broadcast_tensors broadcast_to cdist ceil channels_last
    clamp_max clamp_min compile concatenate contiguous_format cosh cosine_similarity count_nonzero dist
    distributed div divide eq erf erfc exp2 expm1 finfo fliplr flipud floor floor_divide fmod ge greater
    greater_equal gt histc iinfo index_copy index_fill inf is_complex is_floating_point is_same_size is_signed
    isclose isfinite isinf isnan le lerp less less_equal log10 log1p log2 log_softmax logical_and logical_not
    logical_or logical_xor logsumexp lt median moveaxis mul multiply mv nan nan_to_num ne neg negative not_equal
    pairwise_distance pi positive preserve_format quantile ravel reciprocal relu remainder
    repeat_interleave round rsqrt select set_float32_matmul_precision sigmoid sign sinh softmax split_with_sizes
    square sub subtract swapaxes swapdims t tan tanh tile training true_divide trunc unflatten
    use_deterministic_algorithms
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

MORE_FUNCTIONS = names("""
    adaptive_avg_pool1d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
    affine_grid alpha_dropout avg_pool1d avg_pool3d bilinear binary_cross_entropy celu channel_shuffle
    conv_transpose1d conv_transpose3d cosine_embedding_loss cosine_similarity ctc_loss dropout1d dropout2d
    dropout3d embedding embedding_bag feature_alpha_dropout fold gaussian_nll_loss glu grid_sample
    gumbel_softmax hardshrink hardsigmoid hardtanh hinge_embedding_loss huber_loss interpolate kl_div logsigmoid
    lp_pool1d lp_pool2d lp_pool3d margin_ranking_loss max_pool1d max_pool3d max_unpool1d max_unpool2d
    max_unpool3d mish multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss
    native_channel_shuffle one_hot pad pairwise_distance pdist pixel_shuffle pixel_unshuffle poisson_nll_loss
    prelu rrelu scaled_dot_product_attention selu smooth_l1_loss soft_margin_loss softmin softplus softshrink
    softsign tanhshrink threshold triplet_margin_loss triplet_margin_with_distance_loss unfold upsample
    upsample_bilinear upsample_nearest
""")  # their arguments: tests/test_signatures.py

LAYERS = names("""
    Module Parameter Sequential ModuleList ModuleDict Identity Flatten Dropout
    Linear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d
    MaxPool1d MaxPool2d MaxPool3d AvgPool1d AvgPool2d AvgPool3d AdaptiveAvgPool1d AdaptiveAvgPool2d
    BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d GroupNorm LayerNorm
    RMSNorm LocalResponseNorm MeanVarianceNorm Normalization
    GhostBatchNorm BatchRenorm1d BatchRenorm2d BatchRenorm3d FilterResponseNorm2d TLU FrozenBatchNorm2d
    ReLU ReLU6 LeakyReLU ELU GELU SiLU Sigmoid Tanh Softmax LogSoftmax Hardswish
    CrossEntropyLoss MSELoss NLLLoss BCEWithLogitsLoss L1Loss
    AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d AlphaDropout BCELoss Bilinear Buffer
    CELU CTCLoss ChannelShuffle CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d
    ConstantPad3d CosineEmbeddingLoss CosineSimilarity CrossMapLRN2d Dropout1d Dropout2d Dropout3d Embedding
    EmbeddingBag FeatureAlphaDropout Fold GLU GRU GRUCell GaussianNLLLoss Hardshrink Hardsigmoid Hardtanh
    HingeEmbeddingLoss HuberLoss KLDivLoss LPPool1d LPPool2d LPPool3d LSTM LSTMCell LazyBatchNorm1d
    LazyBatchNorm2d LazyBatchNorm3d LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d LazyConvTranspose2d
    LazyConvTranspose3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d LazyLinear LogSigmoid
    MarginRankingLoss MaxUnpool1d MaxUnpool2d MaxUnpool3d Mish MultiLabelMarginLoss MultiLabelSoftMarginLoss
    MultiMarginLoss MultiheadAttention PReLU PairwiseDistance ParameterDict ParameterList PixelShuffle
    PixelUnshuffle PoissonNLLLoss RNN RNNBase RNNCell RNNCellBase RReLU ReflectionPad1d ReflectionPad2d
    ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d SELU SmoothL1Loss SoftMarginLoss
    Softmax2d Softmin Softplus Softshrink Softsign Tanhshrink Threshold Transformer TransformerDecoder
    TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer TripletMarginLoss
    TripletMarginWithDistanceLoss Unflatten Unfold Upsample UpsamplingBilinear2d UpsamplingNearest2d ZeroPad1d
    ZeroPad2d ZeroPad3d
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


@pytest.mark.parametrize("name", MORE_FUNCTIONS)
def test_more_functions(name: str) -> None:
    assert inspect.isfunction(getattr(F, name))


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
