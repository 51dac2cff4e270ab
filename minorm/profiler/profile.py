"""The profiler's public interface: `profile`, `record_function`."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from minorm import cuda
from minorm.profiler import averages, trace_files
from minorm.profiler.averages import EventList
from minorm.profiler.event_recorder import Recorder, here
from minorm.profiler.events import USER, Event
from minorm.profiler.instruments import installed
from minorm.support.decorating import Block
from minorm.support.documented import documented


class ProfilerActivity(enum.Enum):
    """The devices whose time is measured: the CPU and the GPUs.

    Example:
        >>> mn.profiler.ProfilerActivity.CUDA.name
        'CUDA'
    """

    CPU = "cpu"
    CUDA = "cuda"


@documented(
    {},
    activities="a list of ProfilerActivity.CPU and, for times on GPUs, ProfilerActivity.CUDA; None is both if there "
    "is a GPU",
    record_shapes="True records the shapes of the operations' inputs",
    profile_memory="True counts the bytes of new arrays, the bytes that are kept for the backward pass, and the peak",
)
class profile:  # noqa: N801  PyTorch's name
    """`with mn.profiler.profile() as prof:` measures operations, layers, optimizers and data loading in this thread.

    Operations are Functions, forward and backward. Layers are named by their path in the model's state_dict. Other
    threads are not recorded. If no profile is open, nothing is slower. In a profile, each operation takes some
    microseconds longer.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> with mn.profiler.profile() as prof:
        ...     model(mn.randn(3, 4)).sum().backward()
        >>> sorted(event.key for event in prof.key_averages() if "Linear" in event.key)
        ['Linear', 'LinearBackward']

    torch.profiler.profile.
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
    ) -> None:
        self.activities = _checked(activities)
        self.record_shapes, self.profile_memory = record_shapes, profile_memory
        self.steps = 0  # the number of calls of `step`
        self._recorder: Recorder | None = None
        self._held = ExitStack()

    def start(self) -> None:
        """Start recording; a profile can be used only once."""
        if here.recorder is not None:
            raise RuntimeError("profile: another profile is open in this thread; expected one profile at a time")
        if self._recorder is not None:
            raise RuntimeError("profile: this profile was used before; expected a new profile")
        gpu = ProfilerActivity.CUDA in self.activities
        self._held.enter_context(installed())
        here.recorder = self._recorder = Recorder(self.record_shapes, self.profile_memory, gpu)

    def stop(self) -> None:
        """Stop recording; then the results are available."""
        if self._recorder is None or here.recorder is not self._recorder:
            raise RuntimeError(
                "profile: stop() was called, but this profile is not open in this thread; call start() first"
            )
        here.recorder = None
        self._held.close()
        self._recorder.close()

    def step(self) -> None:
        """Mark the end of a training step, so that the summary is about one step."""
        self.steps += 1

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def _done(self) -> Recorder:
        if self._recorder is None or not self._recorder.ended:
            raise RuntimeError("profile: there are no results yet; expected a profile that has ended")
        return self._recorder

    @property
    def peak_memory(self) -> int:
        """The most bytes that arrays of operations and gradients took at one time; it needs profile_memory=True."""
        if self._done.memory is None:
            raise RuntimeError("profile: peak_memory was not counted; expected profile(profile_memory=True)")
        return self._done.memory.peak

    def events(self) -> list[Event]:
        """Return all recorded events, in the order in which they began; times are in nanoseconds."""
        return list(self._done.events)

    @documented(
        {},
        group_by_input_shape="True gives a separate sum for each shape of the inputs; needs record_shapes=True",
        group_by_layer="True gives sums for each layer, forward and backward, instead of each operation",
    )
    def key_averages(self, group_by_input_shape: bool = False, group_by_layer: bool = False) -> EventList:
        """Return the sums by operation, or by layer; `print(prof.key_averages().table(sort_by="self_cpu_time_total"))`.

        The self times of all rows add up to the time of the profile.
        """
        recorder = self._done
        if group_by_input_shape and not self.record_shapes:
            raise ValueError("key_averages: group_by_input_shape needs profile(record_shapes=True)")
        if group_by_layer:
            found = averages.by_layer(recorder.events, recorder.ended)
        else:
            found = averages.by_name(recorder.events, recorder.ended, group_by_input_shape)
        gpu = any(event.device is not None for event in recorder.events)
        return EventList(found, recorder.ended / 1000, gpu, self.profile_memory)

    def summary(self) -> str:
        """Return a sentence about the largest part, such as `62 % of a step is spent in conv2 (Conv2d, backward)`."""
        rows = self.key_averages(group_by_layer=True)
        name = "self_device_time_total" if rows.gpu else "self_cpu_time_total"
        whole = sum(getattr(row, name) for row in rows) or 1.0
        largest = max(rows, key=lambda row: float(getattr(row, name)))
        what = "a step" if self.steps else "the time"
        where = largest.key if largest.key != averages.OUTSIDE else "Python outside of operations"
        on_gpu = " on the GPU" if rows.gpu else ""
        return f"{getattr(largest, name) / whole:.0%} of {what}{on_gpu} is spent in {where}".replace("%", " %", 1)

    @documented({}, path="the file, such as trace.json")
    def export_chrome_trace(self, path: str) -> None:
        """Write the events for https://ui.perfetto.dev and chrome://tracing, which show them as a flame graph."""
        trace_files.write_chrome(path, self._done)

    @documented({}, path="the file, such as profile.speedscope.json")
    def export_speedscope(self, path: str) -> None:
        """Write the events for https://www.speedscope.app, which shows them as a flame graph."""
        trace_files.write_speedscope(path, self._done)


def _checked(activities: Any) -> set[ProfilerActivity]:
    """Return the activities as a set; raise TypeError for other values, RuntimeError for CUDA if there is no GPU."""
    there = cuda.is_available()
    if activities is None:
        return {*ProfilerActivity} if there else {ProfilerActivity.CPU}
    found = list(activities)
    for i, activity in enumerate(found):
        if not isinstance(activity, ProfilerActivity):
            raise TypeError(f"profile: activities[{i}] is {activity!r}; expected ProfilerActivity.CPU or .CUDA")
    if ProfilerActivity.CUDA in found and not there:
        raise RuntimeError("profile: activities has ProfilerActivity.CUDA, but there is no GPU; expected only CPU")
    return set(found)


@documented({}, name="what the range is called in tables and traces")
class record_function(Block):  # noqa: N801  PyTorch's name
    """`with mn.profiler.record_function("augment"):` names a range of a profile.

    If no profile is open, the range has no effect.

    It can also be used as a decorator.

    Example:
        >>> with mn.profiler.profile() as prof:
        ...     with mn.profiler.record_function("double"):
        ...         x = mn.ones(2) * 2
        >>> "double" in [event.key for event in prof.key_averages()]
        True

    torch.profiler.record_function.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._open: list[tuple[Recorder, Event] | None] = []

    def __enter__(self) -> record_function:
        recorder = here.recorder
        self._open.append(None if recorder is None else (recorder, recorder.begin(self.name, USER)))
        return self

    def __exit__(self, *error: object) -> None:
        opened = self._open.pop()
        if opened is not None and here.recorder is opened[0]:
            opened[0].finish(opened[1])

    def _recreate_cm(self) -> record_function:
        return record_function(self.name)
