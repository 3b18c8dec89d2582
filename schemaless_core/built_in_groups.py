"""`BuiltInGroups`: the groups that the store itself needs served, as a list that grows while a worker runs.

Creating an index version registers its group, and dropping it removes the group. A worker only serves: if it
registered what it sees, it would bring back a group that was removed a moment ago.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping

from schemaless_core.datastore import Datastore
from schemaless_core.errors import SchemalessError
from schemaless_core.triggers.group import Group

logger = logging.getLogger(__name__)

#: How often new groups are looked for.
LOOK_SECONDS = 2.0


#: Lists the groups of one kind of built-in work, as they are now.
Source = Callable[[], Iterable[Group]]


def sources(datastore: Datastore) -> dict[str, Source]:
    """The kinds of built-in work that a datastore has by itself. Layers above it may add more."""
    return {"index": lambda: datastore.indexes.groups()}


class BuiltInGroups:
    """Lists the built-in groups of some kinds. A thread of its own looks for them, so that no call has to wait."""

    def __init__(
        self,
        kinds: Mapping[str, Source],
        changed: Callable[[list[str]], None] = lambda names: None,
        *,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._kinds = kinds
        self._changed = changed
        self._look_seconds = look_seconds
        #: By kind: one that cannot be looked at stays as it was, and hides no other.
        self._groups: dict[str, tuple[Group, ...]] = {}
        self._silent: set[str] = set()
        self._names: list[str] | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look_for_ever, name="built-in-groups", daemon=True)

    def __call__(self) -> list[Group]:
        """The groups as they were seen last."""
        return [group for groups in list(self._groups.values()) for group in groups]

    def __enter__(self) -> BuiltInGroups:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join()

    def look(self) -> None:
        """Look once, and tell of a change; the first look that finds out about anything is one."""
        for kind, source in self._kinds.items():
            try:
                self._groups[kind] = tuple(source())
                self._silent.discard(kind)
            except SchemalessError as error:
                self._note_silence(kind, error)
        names = sorted(group.name for group in self())
        if names != self._names and self._groups:
            self._names = names
            self._changed(names)

    def _note_silence(self, kind: str, error: SchemalessError) -> None:
        if kind not in self._silent:  # the others of a row are no news
            self._silent.add(kind)
            extra = {"event": "triggers.built_in_unknown", "kind": kind, "error": error.message}
            logger.warning("which built-in groups there are is not known; those known go on", extra=extra)

    def _look_for_ever(self) -> None:
        while not self._ended.is_set():
            self.look()
            self._ended.wait(self._look_seconds)
