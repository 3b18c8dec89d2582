"""Where two logs of one shard forked, as both histories of epochs tell."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from schemaless_core.engine.base import EpochOpening

#: Epochs, the first added ids that were given at them, and when they were opened: two datastores that lead at one epoch
#: have opened it at two times.
History = frozenset[tuple[int, int, datetime]]


def history_of(openings: Iterable[EpochOpening]) -> History:
    """Without the claim of the job that writes a copy, which stands before all epochs."""
    return frozenset((each.epoch, each.first_added_id, each.opened_at) for each in openings if each.epoch)


def fork(ours: History, theirs: History) -> int:
    """The last added id up to which two logs are the same: what both know was opened at one added id."""
    return min((first for _epoch, first, _at in ours ^ theirs), default=1) - 1


def are_apart(ours: History, theirs: History) -> bool:
    """Whether they are of two logs that never were one."""
    return bool(ours) and not ours & theirs
