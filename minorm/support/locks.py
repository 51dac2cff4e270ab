"""Makes locks that neither a signal handler nor a fork can leave locked for ever."""

from __future__ import annotations

import os
import threading
from typing import Any


def shared_lock() -> Any:
    """Return a lock for use until the process ends.

    It is an RLock, as a signal handler or the garbage collector may enter the same code again in the same thread. A
    fork waits for it: otherwise a lock that another thread holds would stay locked in the child, which lacks that
    thread.
    """
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock
