"""`mn.backends.cudnn`: whether cuDNN does convolutions where it is installed, and whether these may use TF32.

    enabled        True; False leaves convolutions to products of matrices
    allow_tf32     False, where PyTorch has True: float32 is computed in float32. It is for convolutions by cuBLAS too

    benchmark      False; True tries ten plans where a convolution has new shapes and keeps the fastest. Another run may
                   find another one fastest, and have other last bits

`deterministic` may be set, and changes nothing: results of one process are deterministic anyway.
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
