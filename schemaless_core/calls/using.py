"""`Using`: stores with the habits of one caller, each made once."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any, Self

from schemaless_core.deadline import InAll
from schemaless_core.habits import Habits
from schemaless_core.store import CellStore

#: Of a caller of the facade: two backends, at an epoch each, and as mirrors.
KEPT_MAX = 16


class Using:
    """Makes each store once. Threads share it: what two of them make at once is the same."""

    def __init__(self, habits: Habits) -> None:
        default = Habits()
        self._habits = habits
        #: How long a call may take; None: as long as the configuration says.
        self.deadline = habits.deadline
        self._changes: dict[str, Any] = {
            entry.name: value
            for entry in fields(Habits)
            if (value := getattr(habits, entry.name)) != getattr(default, entry.name)
        }
        self._made: dict[int, tuple[CellStore, CellStore]] = {}
        self._within: dict[float, Self] = {}

    def __call__(self, store: CellStore) -> CellStore:
        if not self._changes:
            return store
        found = self._made.get(id(store))
        if found is not None and found[0] is store:
            return found[1]
        made = store.using(**self._changes)
        if len(self._made) >= KEPT_MAX:
            self._made.clear()
        self._made[id(store)] = (store, made)
        return made

    def within(self, seconds: float) -> Self:
        """The same habits with so many seconds for a call in all, or the caller's own deadline if that is shorter."""
        found = self._within.get(seconds)
        if found is None:
            deadline = InAll(min(seconds, math.inf if self.deadline is None else self.deadline))
            found = self._within[seconds] = type(self)(replace(self._habits, deadline=deadline))
        return found
