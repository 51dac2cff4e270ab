"""`mn.backends.cudnn`: whether cuDNN does convolutions where it is installed, and whether these may use TF32.

    enabled        True; False leaves convolutions to products of matrices
    allow_tf32     False, where PyTorch has True: float32 is computed in float32. It is for convolutions by cuBLAS too

`benchmark` and `deterministic` may be set, and change nothing: results are deterministic anyway.
"""

from minorm.backends.switch import switch, with_switches
from minorm.cuda import is_available

__all__ = ["allow_tf32", "benchmark", "deterministic", "enabled", "is_available"]

benchmark, deterministic = False, True
allow_tf32: bool
enabled: bool

with_switches(
    __name__,
    allow_tf32=switch("conv_tf32", "backends.cudnn.allow_tf32"),
    enabled=switch("cudnn", "backends.cudnn.enabled"),
)
