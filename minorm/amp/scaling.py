"""GradScaler keeps small gradients from vanishing in float16: it multiplies the loss by a factor before backward(), and
divides the gradients by the same factor after backward().

The factor grows while all gradients are finite. If a gradient is not finite, the optimizer's step is skipped and the
factor shrinks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minorm import devices
from minorm.devices import dtypes
from minorm.support.argument_errors import Checked, kind_of
from minorm.support.states import check_number


class GradScaler(Checked):
    """Uses loss * scale for backward(), and gradient / scale for the optimizer's step.

    Args:
        device (str, default 'cuda'): accepted as in PyTorch; the scale is a Python number, for tensors of any device
        init_scale (float, default 65536.0): the scale at the beginning
        growth_factor (float, default 2.0): multiplies the scale after `growth_interval` finite steps
        backoff_factor (float, default 0.5): multiplies the scale after a step that was left out
        growth_interval (int, default 2000): the number of finite steps after which the scale grows
        enabled (bool, default True): False changes no losses and gradients, and leaves out no step

    bfloat16 has the range of float32 and needs no scaler. In each step, the host reads one number from the GPU, which
    says whether all gradients are finite.

    Example:
        >>> w = mn.nn.Parameter(mn.tensor([1.0]))
        >>> scaler, optimizer = mn.amp.GradScaler("cpu", init_scale=4.0), mn.optim.SGD([w], lr=0.5)
        >>> scaler.scale((w * 3).sum()).backward()
        >>> w.grad
        tensor([12.])
        >>> scaler.step(optimizer)  # w - 0.5 * 12 / 4
        >>> scaler.update()
        >>> w
        Parameter containing:
        tensor([-0.5], requires_grad=True)

    Source: Micikevicius et al. 2017, arXiv:1710.03740.
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
        if not growth_factor > 1 or not 0 < backoff_factor < 1 or not init_scale > 0 or growth_interval < 1:
            raise ValueError(
                f"GradScaler: init_scale={init_scale}, growth_factor={growth_factor}, backoff_factor={backoff_factor}, "
                f"growth_interval={growth_interval}; expected a scale above 0, growth above 1, backoff from 0 to 1, "
                "and an interval of at least 1"
            )
        self.device, self.asked = device, bool(enabled)
        self.growth_factor, self.backoff_factor = float(growth_factor), float(backoff_factor)
        self.growth_interval = growth_interval
        self._scale, self._growth_tracker = float(init_scale), 0
        self._finite: dict[int, bool] = {}  # by the id of each optimizer whose gradients are already divided
        self._stepped: set[int] = set()

    def scale(self, outputs: Any) -> Any:
        """Return outputs * scale for a Tensor, or for a list or tuple of Tensors; 16-bit Tensors become float32."""
        if not self.asked:
            return outputs
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(output) for output in outputs)
        wide = outputs.float() if outputs.dtype in dtypes.HALVES else outputs
        return wide * self._scale

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer now, for example before clipping; otherwise `step` divides them.

        Raises RuntimeError for a second call before `update()`, and for a call after `step()`.
        """
        if not self.asked:
            return
        if id(optimizer) in self._stepped:
            raise RuntimeError("unscale_: step() was called for this optimizer; expected unscale_() before it")
        if id(optimizer) in self._finite:
            raise RuntimeError(
                "unscale_: the gradients of this optimizer are divided already; expected update() before the next "
                "unscale_()"
            )
        self._finite[id(optimizer)] = self._divide(optimizer)

    def _divide(self, optimizer: Any) -> bool:
        """Divide all gradients by the scale; return whether all gradients are finite."""
        found: Any = None
        inverse = 1.0 / self._scale
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                array = p.grad.array
                if array.dtype == dtypes.float16:
                    raise ValueError(
                        "GradScaler: a gradient is float16; expected float32 parameters, which autocast does not "
                        "convert: in float16 small gradients would vanish when they are divided"
                    )
                with devices.on_device_of(array):
                    array *= array.dtype.type(inverse)
                    finite = np.isfinite(array).all()
                    found = finite if found is None else found & finite
                p.grad.version.count += 1
        return True if found is None else bool(found)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Call optimizer.step with divided gradients; if a gradient is not finite, do nothing and return None."""
        if not self.asked:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs or args:
            raise RuntimeError(
                "GradScaler.step: a closure is given; expected no closure, because its gradients would be scaled"
            )
        if id(optimizer) in self._stepped:
            raise RuntimeError(
                "GradScaler.step: called twice for this optimizer; expected update() between the two calls"
            )
        if id(optimizer) not in self._finite:
            self.unscale_(optimizer)
        self._stepped.add(id(optimizer))
        return optimizer.step(**kwargs) if self._finite[id(optimizer)] else None

    def update(self, new_scale: float | None = None) -> None:
        """Grow the scale after `growth_interval` finite steps, or shrink it after a skipped step.

        If `new_scale` is given, it becomes the scale.
        """
        if not self.asked:
            return
        if new_scale is not None:
            self._scale = float(new_scale)
        elif not self._finite:
            raise RuntimeError(
                "GradScaler.update: no gradients were checked; expected step() or unscale_() before update()"
            )
        elif not all(self._finite.values()):
            self._scale = _float32(self._scale * self.backoff_factor)
            self._growth_tracker = 0
        else:
            self._growth_tracker += 1
            if self._growth_tracker == self.growth_interval:
                self._scale = _float32(self._scale * self.growth_factor)
                self._growth_tracker = 0
        self._finite.clear()
        self._stepped.clear()

    def get_scale(self) -> float:
        """Return the scale, or 1.0 if enabled is False."""
        return self._scale if self.asked else 1.0

    def is_enabled(self) -> bool:
        """Return the argument `enabled`."""
        return self.asked

    def get_growth_factor(self) -> float:
        """Return the factor by which the scale grows."""
        return self.growth_factor

    def get_backoff_factor(self) -> float:
        """Return the factor by which the scale shrinks."""
        return self.backoff_factor

    def get_growth_interval(self) -> int:
        """Return the number of finite steps after which the scale grows."""
        return self.growth_interval

    def state_dict(self) -> dict[str, Any]:
        """Return the scale and its settings, with PyTorch's names, or {} if enabled is False."""
        if not self.asked:
            return {}
        return {
            "scale": self._scale,
            "growth_factor": self.growth_factor,
            "backoff_factor": self.backoff_factor,
            "growth_interval": self.growth_interval,
            "_growth_tracker": self._growth_tracker,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from the state of a scaler of minorm or PyTorch. If enabled is False, do nothing."""
        if not self.asked:
            return
        operation = "GradScaler.load_state_dict"
        if not isinstance(state_dict, Mapping):
            raise TypeError(
                f"{operation}: the state is a {kind_of(state_dict)}; expected a dict, as state_dict() gives"
            )
        expected = self.state_dict().keys()
        if missing := expected - state_dict.keys():
            raise RuntimeError(
                f"{operation}: {', '.join(sorted(missing))} not there; expected the state of an enabled "
                f"scaler, with {', '.join(expected)}"
            )
        for name in expected:
            whole = name in ("growth_interval", "_growth_tracker")
            check_number(operation, name, state_dict[name], 0, whole=whole)
        found = {
            "_scale": float(state_dict["scale"]),
            "growth_factor": float(state_dict["growth_factor"]),
            "backoff_factor": float(state_dict["backoff_factor"]),
            "growth_interval": int(state_dict["growth_interval"]),
            "_growth_tracker": int(state_dict["_growth_tracker"]),
        }
        vars(self).update(found)  # in one step, which Ctrl-C cannot interrupt


def _float32(number: float) -> float:
    """Round to float32, because PyTorch keeps the scale in float32."""
    return float(np.float32(number))
