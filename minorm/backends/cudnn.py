"""`import minorm.backends.cudnn as cudnn`: switches that may be set, and whether an NVIDIA GPU can be used."""

from minorm.cuda import is_available

__all__ = ["allow_tf32", "benchmark", "deterministic", "enabled", "is_available"]

enabled, benchmark, deterministic, allow_tf32 = True, False, True, False
