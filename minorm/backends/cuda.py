"""`mn.backends.cuda.matmul.allow_tf32 = True`: products of float32 matrices on a GPU may be computed in TF32."""

from minorm.backends.switch import switch
from minorm.cuda import is_available

__all__ = ["is_built", "matmul"]


class Matmul:
    """allow_tf32 is False by default; then float32 products are computed in float32, even if CUPY_TF32 is set."""

    allow_tf32 = switch("matmul_tf32", "backends.cuda.matmul.allow_tf32")


matmul = Matmul()


def is_built() -> bool:
    """Return whether CUDA can be used; there is nothing that must be built in advance."""
    return is_available()
