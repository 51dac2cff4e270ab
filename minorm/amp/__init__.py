"""Automatic mixed precision, as PyTorch has it: products in 16 bits, what overflows there in float32.

    with mn.autocast("cpu", mn.bfloat16):       or "cuda"
        loss = loss_function(model(images), labels)
    scaler.scale(loss).backward()               float16 alone needs the scaler
    scaler.step(optimizer)
    scaler.update()

Parameters stay in float32, and so do their gradients and the optimizer's steps. The backward pass keeps the 16-bit
results, so a step takes about half of the memory; on a GPU the products are faster too.
"""

from minorm.amp.casting import autocast, get_autocast_dtype, is_autocast_available, is_autocast_enabled
from minorm.amp.scaling import GradScaler

__all__ = ["GradScaler", "autocast", "get_autocast_dtype", "is_autocast_available", "is_autocast_enabled"]
