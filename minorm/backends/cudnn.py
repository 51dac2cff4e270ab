"""`mn.backends.cudnn`: whether cuDNN, if it is installed, computes convolutions, and whether these may use TF32.

    enabled        by default True; False computes convolutions as products of matrices
    allow_tf32     by default False (PyTorch: True): float32 is computed in float32 by cuDNN and cuBLAS

    benchmark      by default False; True tries ten plans for each new shape of a convolution and keeps the fastest.
                   Another run may find another plan fastest, and have other last bits

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
