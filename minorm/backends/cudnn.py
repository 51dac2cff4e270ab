"""`mn.backends.cudnn`: whether cuDNN, if it is installed, computes convolutions, and whether these may use TF32.

    enabled        by default True; if False, convolutions are computed as products of matrices
    allow_tf32     by default False (in PyTorch True); then cuDNN and cuBLAS compute float32 in float32

    benchmark      by default False; if True, ten plans are tried for each new shape of a convolution, and the fastest
                   is kept. In another run, another plan may be the fastest, and the last bits may differ

`deterministic` may be set without effect: results of one process are deterministic anyway.
"""

from minorm.backends.switch import switch, with_switches
from minorm.cuda import is_available

__all__ = ["allow_tf32", "benchmark", "deterministic", "enabled", "is_available"]

deterministic = True
allow_tf32: bool
benchmark: bool
enabled: bool

with_switches(
    __name__,
    allow_tf32=switch("conv_tf32", "backends.cudnn.allow_tf32"),
    benchmark=switch("cudnn_benchmark", "backends.cudnn.benchmark"),
    enabled=switch("cudnn", "backends.cudnn.enabled"),
)
