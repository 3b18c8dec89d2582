"""`Known`: what this process goes by: the authority row and the flags, as it saw them last.

Both may be out of date. The stores refuse a caller with an old row, so what is known here only decides which store to
ask first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from tripstore.errors import StaleLayout
from tripstore.facade.flags import Flags
from tripstore.handover.authority import Authority
from tripstore.phase import Phase, Route


class Sight(NamedTuple):
    """Row and flags together: a call looks once."""

    authority: Authority
    flags: Flags
    phase: Phase
    route: Route

    @property
    def has_cohort(self) -> bool:
        """Whether callers may get answers of the mirror."""
        return self.route.asks_other and any(self.flags.cohorts(self.authority.backend).values())


class Known:
    """Changed by the thread that learns something, read by every call.

    `layout`: by which this process goes. It learns no row that names another one, so it presents no such epoch.
    """

    def __init__(self, layout: str | None = None) -> None:
        self._layout = layout
        #: Called once, by the thread that hears that another layout is in force.
        self.when_stale: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._flags = Flags()
        #: Whether they were read yet. Until then every call goes where it is right in any phase.
        self.has_flags = False
        #: None: nothing is known of the authority yet.
        self.sight: Sight | None = None

    @property
    def flags(self) -> Flags:
        return self._flags

    @property
    def has_cohort(self) -> bool:
        """Whether, for all that is known, callers may get answers of the mirror."""
        sight = self.sight
        return sight is not None and sight.has_cohort

    def learn_authority(self, row: Authority) -> Sight:
        """Go by this row, unless a younger one is known. `StaleLayout`: it names another layout than this process's."""
        try:
            row.check_layout(self._layout)
        except StaleLayout:
            self.when_stale()
            raise
        with self._lock:
            known = self.sight
            if known is None or row.epoch > known.authority.epoch:
                known = self.sight = _sight(row, self._flags, has_flags=self.has_flags)
            return known

    def learn_flags(self, flags: Flags) -> None:
        with self._lock:
            if flags.version < self._flags.version:
                return
            self._flags, self.has_flags = flags, True
            if self.sight is not None:
                row = self.sight.authority
                self.sight = _sight(row, flags, has_flags=True)

    def after_fork(self) -> None:
        """A lock that another thread of the parent held would never be released here."""
        self._lock = threading.Lock()


def _sight(row: Authority, flags: Flags, *, has_flags: bool) -> Sight:
    phase = flags.phase(row)
    return Sight(row, flags, phase, phase.route if has_flags else phase.route._replace(asks_other=False))
