"""A recorder of the library `eventsourcing` on a cell store: an event is a cell, its version the ref key.

With one shard the added ids are the library's notification ids. What it writes at once is one row's, and by one commit.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from schemaless_core import Cell, InvalidRequest, JointStore

COLUMN = "EVENT"
PAGE = 1_000


class CellRecorder:
    """What `AggregateRecorder` and `ApplicationRecorder` ask; `library` is the module `eventsourcing.persistence`."""

    def __init__(self, store: JointStore, library: Any, *, tells_ids: bool) -> None:
        self._store = store
        self._library = library
        self._tells_ids = tells_ids

    def insert_events(self, stored_events: Sequence[Any], **_: Any) -> Sequence[int] | None:
        """All or none; an event that is there already is refused."""
        if not stored_events:
            return None
        cells = [_cell(event) for event in stored_events]
        while True:
            seen = self._store.end_of_log(0)
            if any(self._store.get_cells([cell.key for cell in cells])):
                raise self._library.IntegrityError("an event is recorded already")
            try:
                put = self._store.put_together(cells, seen)
            except InvalidRequest as refusal:
                raise self._library.IntegrityError(str(refusal)) from refusal
            if put is not None:  # else another writer was faster: it is found now, or is of another version
                return [result.added_id or 0 for result in put] if self._tells_ids else None

    def select_events(
        self,
        originator_id: UUID,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[Any]:
        found: list[Cell] = []
        before = None if lte is None else lte + 1
        while page := self._store.get_history(originator_id, COLUMN, before=before, limit=PAGE):
            found += [cell for cell in page if gt is None or cell.ref_key > gt]
            before = page[-1].ref_key
        return [self._event(cell) for cell in (found if desc else found[::-1])][:limit]

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Any]:
        after = 0 if start is None else max(0, start - inclusive_of_start)
        found: list[Any] = []
        while len(found) < limit:
            page = self._store.get_cells_for_shard(0, after, min(PAGE, limit if not topics else PAGE))
            events = [(cell.added_id or 0, self._event(cell)) for cell in page.cells]
            found += [
                self._library.Notification(
                    event.originator_id, event.originator_version, event.topic, event.state, added_id
                )
                for added_id, event in events
                if (not topics or event.topic in topics) and (stop is None or added_id <= stop)
            ]
            if not page.cells or (stop is not None and page.next_location >= stop):
                break
            after = page.next_location
        return found[:limit]

    def max_notification_id(self) -> int | None:
        return self._store.end_of_log(0).added_id or None

    def _event(self, cell: Cell) -> Any:
        assert isinstance(cell.body, dict)
        topic, state = cell.body["topic"], base64.b64decode(str(cell.body["state"]))
        return self._library.StoredEvent(cell.row_key, cell.ref_key, topic, state)


def _cell(event: Any) -> Cell:
    body = {"topic": event.topic, "state": base64.b64encode(event.state).decode()}
    return Cell(event.originator_id, COLUMN, event.originator_version, body)
