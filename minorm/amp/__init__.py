"""Automatic mixed precision, as in PyTorch: matrix products use 16 bits, and operations that may overflow use float32.

    with mn.autocast("cpu", mn.bfloat16):       or "cuda"
        loss = loss_function(model(images), labels)
    scaler.scale(loss).backward()               only float16 needs the scaler
    scaler.step(optimizer)
    scaler.update()

Parameters, their gradients and the optimizer's steps stay in float32. The 16-bit results are kept for the backward
pass, so a step takes about half of the memory. On a GPU, products are also faster.
"""

from minorm.amp.casting import autocast, get_autocast_dtype, is_autocast_available, is_autocast_enabled
from minorm.amp.scaling import GradScaler

__all__ = ["GradScaler", "autocast", "get_autocast_dtype", "is_autocast_available", "is_autocast_enabled"]
