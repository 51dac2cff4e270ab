"""Makes locks that no signal handler and no fork can leave locked for ever."""

from __future__ import annotations

import os
import threading
from typing import Any


def shared_lock() -> Any:
    """Return a lock that is used until the process ends.

    The lock is an RLock, because a signal handler or the garbage collector may run the same code again in the same
    thread. A fork waits until the lock is free. Otherwise a lock that another thread holds would stay locked in the
    child, where this thread does not exist.
    """
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock
