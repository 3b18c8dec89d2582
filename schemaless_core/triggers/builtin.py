"""`BuiltInGroups`: the groups that the store itself needs served, as a list that grows while a worker runs.

Whoever creates an index version registers its group, and whoever drops it removes it. A worker only serves: if it
registered what it sees, it would bring back a group that was removed a moment ago.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable

from schemaless_core.datastore import Datastore
from schemaless_core.errors import SchemalessError
from schemaless_core.triggers.group import Group

logger = logging.getLogger(__name__)

#: How often new groups are looked for.
LOOK_SECONDS = 2.0


def _index_groups(datastore: Datastore) -> Iterable[Group]:
    return datastore.indexes.groups()


#: Each kind of built-in work, and who lists its groups.
KINDS: dict[str, Callable[[Datastore], Iterable[Group]]] = {"index": _index_groups}


class BuiltInGroups:
    """Lists the built-in groups of some kinds. A thread of its own looks for them, so that no call has to wait."""

    def __init__(
        self,
        datastore: Datastore,
        kinds: Collection[str],
        changed: Callable[[list[str]], None] = lambda names: None,
        *,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._datastore = datastore
        self._kinds = kinds
        self._changed = changed
        self._look_seconds = look_seconds
        self._groups: tuple[Group, ...] = ()
        self._names: list[str] | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look_for_ever, name="built-in-groups", daemon=True)

    def __call__(self) -> list[Group]:
        """The groups as they were seen last."""
        return list(self._groups)

    def __enter__(self) -> BuiltInGroups:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join()

    def look(self) -> None:
        """Look once, and tell of a change; the first look is one."""
        self._groups = tuple(group for kind in self._kinds for group in KINDS[kind](self._datastore))
        names = sorted(group.name for group in self._groups)
        if names != self._names:
            self._names = names
            self._changed(names)

    def _look_for_ever(self) -> None:
        failures = 0
        while not self._ended.is_set():
            try:
                self.look()
                failures = 0
            except SchemalessError as error:
                failures += 1
                if failures == 1:  # the others of a row are no news
                    extra = {"event": "triggers.built_in_unknown", "error": error.message}
                    logger.warning("which built-in groups there are is not known; those known go on", extra=extra)
            self._ended.wait(self._look_seconds)
