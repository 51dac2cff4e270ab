"""PyTorch's automatic mixed precision, so that programs that ask for it run: precision never changes unasked here.

    with amp.autocast("cuda"):           computes in the types that the tensors have
        loss = model(images)
    scaler.scale(loss).backward()        passes the loss and the step on, as PyTorch's does with enabled=False
    scaler.step(optimizer)
    scaler.update()

Lower precision is chosen by `model.half()` or `x.to(minorm.bfloat16)`; there is no overflow to scale for otherwise.
"""

from __future__ import annotations

from contextlib import ContextDecorator
from typing import Any

from minorm.documented import documented
from minorm.mistakes import Checked


@documented(
    {},
    device_type='"cuda" or "cpu"',
    dtype="taken, without effect: results have the types that the operands have",
    enabled="taken, without effect",
    cache_enabled="taken, without effect",
)
class autocast(ContextDecorator, Checked):  # noqa: N801  PyTorch's name
    """A `with` block, or a decorator, that changes nothing: y has the type of x.

    TypeError for a device_type that is no text.

    Example:
        >>> with mn.autocast("cpu", dtype=mn.bfloat16):
        ...     y = mn.ones(2) * 2
        >>> y.dtype
        dtype('float32')
    """

    def __init__(self, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: Any = None) -> None:
        if not isinstance(device_type, str):
            raise TypeError(f"autocast: device_type is {device_type!r}; expected 'cuda' or 'cpu'")
        self.device, self.fast_dtype, self.cache_enabled = device_type, dtype, cache_enabled
        self.asked = enabled

    def __enter__(self) -> autocast:
        return self

    def __exit__(self, *error: object) -> None:
        pass


@documented(
    {},
    device="taken, without effect",
    init_scale="taken, without effect: the scale is 1",
    growth_factor="taken, without effect",
    backoff_factor="taken, without effect",
    growth_interval="taken, without effect",
    enabled="taken, without effect",
)
class GradScaler(Checked):
    """The scale is 1: losses, gradients and steps pass as they are.

    Example:
        >>> scaler = mn.amp.GradScaler()
        >>> scaler.scale(mn.tensor(2.0)), scaler.get_scale()
        (tensor(2.), 1.0)
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self.device, self.asked = device, enabled
        self.settings = init_scale, growth_factor, backoff_factor, growth_interval

    def scale(self, outputs: Any) -> Any:
        """The outputs themselves."""
        return outputs

    def unscale_(self, optimizer: Any) -> None:
        """Nothing: the gradients are not scaled."""

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step(*args, **kwargs)`"""
        return optimizer.step(*args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        """Nothing: the scale stays 1."""

    def get_scale(self) -> float:
        """1.0"""
        return 1.0

    def is_enabled(self) -> bool:
        """False."""
        return False

    def state_dict(self) -> dict[str, Any]:
        """Empty: there is no state."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes the state of any scaler; there is none to set."""
