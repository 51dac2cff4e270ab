"""Makes locks that neither the handler of a signal nor a fork can leave stuck."""

from __future__ import annotations

import os
import threading
from typing import Any


def shared_lock() -> Any:
    """Return a lock for the life of the process.

    A signal handler or the garbage collector may enter the same code again in the same thread, so it is an RLock.
    A fork waits for it: a lock that another thread holds would stay locked in the child, which does not have that
    thread.
    """
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock
