"""The cpu backend: the compiled kernels, or the reference if the wheel was built without compiled kernels."""

from typing import TYPE_CHECKING

import minorm_ext
from minorm.kernels.reference import copying, indexing

if TYPE_CHECKING or minorm_ext.COMPILED:
    from minorm.kernels.cpu import (
        chain,
        conv,
        elementwise,
        integers,
        matmul,
        memory,
        norm,
        pool,
        random,
        recurrent,
        sums,
        update,
    )
else:
    from minorm.kernels.reference import (  # type: ignore[no-redef]  # the same names, with the same functions
        chain,
        conv,
        elementwise,
        integers,
        matmul,
        memory,
        norm,
        pool,
        random,
        recurrent,
        sums,
        update,
    )
