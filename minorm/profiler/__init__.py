"""Measure a model's time and memory by operation and by layer, forward and backward, with PyTorch's names.

    with mn.profiler.profile(profile_memory=True) as prof:
        loss_function(model(x), y).backward()
    print(prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=10))
    prof.export_chrome_trace("trace.json")

event_recorder.py records events, instruments.py makes the library report events, and averages.py adds them up.
"""

from minorm.profiler.profile import ProfilerActivity, profile, record_function

__all__ = ["ProfilerActivity", "profile", "record_function"]
