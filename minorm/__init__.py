"""minorm: train small networks, and read how normalization works on the way.

    import minorm as mn
    from minorm import nn, optim
    import minorm.functional as F

mn.data, mn.models, mn.onnx (which needs the extra "onnx"), mn.utils, mn.amp, mn.accelerator, mn.backends, mn.profiler,
mn.quantization and mn.training are imported at their first use. Names, arguments and state_dict keys are PyTorch's
wherever the meaning is the same.
"""

import minorm.support.startup  # before NumPy, so that the command line can handle Ctrl-C from the start

# isort: split

import importlib
from math import inf, nan, pi
from typing import TYPE_CHECKING, Any

from minorm.support import elsewhere, installed

try:
    from minorm import autograd, cuda, functional, nn, optim
except ImportError as error:
    installed.explain(error)
    raise
from minorm.config import __version__, get_num_threads, set_num_threads, show_config
from minorm.devices import device
from minorm.devices.dtypes import (
    bfloat16,
    bool,
    channels_last,
    channels_last_3d,
    contiguous_format,
    double,
    dtype,
    finfo,
    float,
    float16,
    float32,
    float64,
    get_default_dtype,
    half,
    iinfo,
    int,
    int8,
    int16,
    int32,
    int64,
    long,
    preserve_format,
    set_default_dtype,
    short,
    uint8,
    uint16,
    uint32,
    uint64,
)
from minorm.devices.generators import Generator, manual_seed
from minorm.graph.grad_mode import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from minorm.kernels import cpu as _cpu
from minorm.normalization.running import no_stats_update
from minorm.tensor.combining import (
    allclose,
    broadcast_tensors,
    cat,
    column_stack,
    concat,
    concatenate,
    hstack,
    is_tensor,
    matmul,
    maximum,
    meshgrid,
    minimum,
    pad,
    stack,
    tensordot,
    vstack,
    where,
)
from minorm.tensor.creation import (
    arange,
    as_tensor,
    empty,
    empty_like,
    eye,
    from_dlpack,
    from_numpy,
    full,
    full_like,
    linspace,
    ones,
    ones_like,
    tensor,
    zeros,
    zeros_like,
)
from minorm.tensor.functions import (
    abs,
    absolute,
    add,
    addcdiv,
    addcmul,
    addmm,
    all,
    amax,
    amin,
    any,
    arctan,
    arctan2,
    argmax,
    argmin,
    argsort,
    argwhere,
    atan,
    atan2,
    baddbmm,
    bernoulli,
    bincount,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    bmm,
    broadcast_to,
    ceil,
    chunk,
    clamp,
    clamp_max,
    clamp_min,
    clip,
    clone,
    cos,
    cosh,
    count_nonzero,
    cumprod,
    cumsum,
    detach,
    diag,
    diag_embed,
    diagonal,
    diff,
    dist,
    div,
    divide,
    dot,
    eq,
    equal,
    erf,
    erfc,
    erfinv,
    exp,
    exp2,
    expm1,
    flatten,
    flip,
    fliplr,
    flipud,
    floor,
    floor_divide,
    fmod,
    gather,
    ge,
    greater,
    greater_equal,
    gt,
    histc,
    index_add,
    index_copy,
    index_fill,
    index_put,
    index_select,
    is_complex,
    is_floating_point,
    is_same_size,
    is_signed,
    isclose,
    isfinite,
    isinf,
    isnan,
    le,
    lerp,
    less,
    less_equal,
    log,
    log1p,
    log2,
    log10,
    log_softmax,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    logit,
    logsumexp,
    lt,
    masked_fill,
    masked_scatter,
    masked_select,
    max,
    mean,
    median,
    min,
    mm,
    moveaxis,
    movedim,
    mul,
    multinomial,
    multiply,
    mv,
    nan_to_num,
    nanmean,
    nansum,
    narrow,
    ne,
    neg,
    negative,
    nonzero,
    norm,
    not_equal,
    numel,
    outer,
    permute,
    positive,
    pow,
    prod,
    quantile,
    ravel,
    reciprocal,
    relu,
    remainder,
    repeat_interleave,
    reshape,
    roll,
    round,
    rsqrt,
    scatter,
    scatter_add,
    scatter_reduce,
    select,
    sigmoid,
    sign,
    sin,
    sinh,
    softmax,
    sort,
    split,
    split_with_sizes,
    sqrt,
    square,
    squeeze,
    std,
    std_mean,
    sub,
    subtract,
    sum,
    swapaxes,
    swapdims,
    t,
    take_along_dim,
    tan,
    tanh,
    tensor_split,
    tile,
    topk,
    trace,
    transpose,
    tril,
    triu,
    true_divide,
    trunc,
    unbind,
    unflatten,
    unique,
    unsqueeze,
    var,
    var_mean,
    xlogy,
)
from minorm.tensor.printing import set_printoptions
from minorm.tensor.random_tensors import normal, rand, rand_like, randint, randint_like, randn, randn_like, randperm
from minorm.tensor.shapes import Size
from minorm.tensor.tensor import Tensor

empty_cache = _cpu.memory.empty_cache

if TYPE_CHECKING:
    from minorm import (
        accelerator,
        amp,
        backends,
        data,
        distributions,
        models,
        onnx,
        profiler,
        quantization,
        training,
        utils,
    )
    from minorm.amp import autocast, get_autocast_dtype, is_autocast_available, is_autocast_enabled
    from minorm.backends import compile, set_float32_matmul_precision, use_deterministic_algorithms
    from minorm.diagnosis import diagnose
    from minorm.diagnosis.explanation import explain
    from minorm.functional.distances import cdist, cosine_similarity, pairwise_distance
    from minorm.functional.einsum import einsum
    from minorm.serialization.checkpoint import load, save
    from minorm.tensor.legacy import (
        BoolTensor,
        ByteTensor,
        DoubleTensor,
        FloatTensor,
        HalfTensor,
        IntTensor,
        LongTensor,
        ShortTensor,
    )
    from minorm.tensor.searching import bucketize, isin, searchsorted
    from minorm.tensor.triangles import tril_indices, triu_indices

_LATER = {  # names whose modules `import minorm` does not load
    "BoolTensor": "tensor.legacy",
    "ByteTensor": "tensor.legacy",
    "DoubleTensor": "tensor.legacy",
    "FloatTensor": "tensor.legacy",
    "HalfTensor": "tensor.legacy",
    "IntTensor": "tensor.legacy",
    "LongTensor": "tensor.legacy",
    "ShortTensor": "tensor.legacy",
    "bucketize": "tensor.searching",
    "isin": "tensor.searching",
    "searchsorted": "tensor.searching",
    "tril_indices": "tensor.triangles",
    "triu_indices": "tensor.triangles",
    "autocast": "amp",
    "get_autocast_dtype": "amp",
    "is_autocast_available": "amp",
    "is_autocast_enabled": "amp",
    "cdist": "functional.distances",
    "compile": "backends",
    "cosine_similarity": "functional.distances",
    "diagnose": "diagnosis",
    "einsum": "functional.einsum",
    "explain": "diagnosis.explanation",
    "load": "serialization.checkpoint",
    "pairwise_distance": "functional.distances",
    "save": "serialization.checkpoint",
    "set_float32_matmul_precision": "backends",
    "use_deterministic_algorithms": "backends",
}
_MODULES = {
    "accelerator",
    "amp",
    "autograd",
    "backends",
    "cuda",
    "data",
    "distributed",
    "distributions",
    "functional",
    "models",
    "nn",
    "onnx",
    "optim",
    "profiler",
    "quantization",
    "training",
    "utils",
}
_ADDRESSES = {"checkpoint", "random"}  # documented addresses of code in serialization/ and devices/


def __getattr__(name: str) -> Any:
    """Return the module or the function `name`, which is imported at its first use."""
    try:
        if name in _MODULES or name in _ADDRESSES or name in _LATER.values():
            return importlib.import_module(f"minorm.{name}")
        if name in _LATER:
            found = globals()[name] = getattr(importlib.import_module(f"minorm.{_LATER[name]}"), name)
            return found
    except ImportError as error:
        installed.explain(error)
        raise
    raise AttributeError(f"module 'minorm' has no attribute {name!r}{elsewhere.advice('minorm', name)}")


def __dir__() -> list[str]:
    """Return only the public names, not the modules that define these names."""
    module = type(minorm)
    own = {name for name, value in globals().items() if not name.startswith("_") and not isinstance(value, module)}
    return sorted((own | _MODULES | _LATER.keys() | {"__version__"}) - {"Any", "TYPE_CHECKING"})
