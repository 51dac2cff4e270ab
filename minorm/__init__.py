"""minorm: train small networks, and read how normalization works on the way.

    import minorm as mn
    from minorm import nn, optim
    import minorm.functional as F
    import minorm.onnx          # by name: it needs the extra "onnx"

Names, arguments and state_dict keys are PyTorch's wherever the meaning is the same.
"""

import minorm.startup  # before NumPy: Ctrl-C must find the command line ready for it

# isort: split

from minorm import cuda, functional, nn, optim
from minorm.autograd import enable_grad, is_grad_enabled, no_grad
from minorm.checkpoint import load, save
from minorm.config import __version__, get_num_threads, set_num_threads, show_config
from minorm.creation import (
    arange,
    as_tensor,
    empty,
    eye,
    from_dlpack,
    from_numpy,
    full,
    full_like,
    linspace,
    ones,
    ones_like,
    rand,
    randint,
    randn,
    randperm,
    tensor,
    zeros,
    zeros_like,
)
from minorm.dtypes import (
    bfloat16,
    bool,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from minorm.explain import explain
from minorm.joining import (
    abs,
    allclose,
    argmax,
    cat,
    clamp,
    clip,
    cos,
    exp,
    flatten,
    gather,
    log,
    matmul,
    maximum,
    mean,
    minimum,
    pad,
    permute,
    reshape,
    sin,
    split,
    sqrt,
    stack,
    sum,
    transpose,
    var,
    where,
)
from minorm.kernels.cpu.memory import empty_cache
from minorm.random import manual_seed
from minorm.running import no_stats_update
from minorm.tensor import Tensor
