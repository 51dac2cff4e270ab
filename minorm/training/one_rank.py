"""What one rank does for all: rank 0 writes a run's files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minorm.distributed import Group, RankError


def on_rank_0(group: Group | None, act: Callable[[], Any]) -> None:
    """Call it on rank 0; where it raises there, RankError on the others."""
    if group is None or group.size == 1:
        act()
        return
    try:
        if group.rank == 0:
            act()
    except (OSError, ValueError) as error:
        group.all_gather_text(str(error), "what was written")
        raise
    if said := group.all_gather_text("", "what was written")[0]:
        raise RankError(f"rank 0 could not write: {said}")
