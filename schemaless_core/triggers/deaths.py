"""`Deaths`: finds the cell whose call ends its process, where neither the process nor its memory can say so.

A claim is counted beside the offset. When an offset has not moved between two claims, its worker may have died of a
cell behind it: from there on cells are called for one at a time, each noted beside the offset before and each offset
saved after it. A cell whose calls began and never ended is parked after the usual number of attempts.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import NamedTuple

from schemaless_core.cell.standing import Kind, ShardState, Standing
from schemaless_core.config import TriggerConfig
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Node
from schemaless_core.engine.groups import CallNote, ClaimSeen
from schemaless_core.errors import SchemalessError
from schemaless_core.failpoints import reach
from schemaless_core.servers.routing import Router
from schemaless_core.triggers.held import Held

logger = logging.getLogger(__name__)

SECONDS = 1.0
#: Claims without a step between them after which a shard's cells are called for one at a time.
CLAIMS_MAX = 2
#: So many pages: more than a worker delivers between two savings of its offset.
CAREFUL_PAGES = 10
_STANDING = Standing(Kind.COPIER)


class ProcessDied(Exception):
    """The process of a function ended during its calls for a cell."""

    def __init__(self, calls: int) -> None:
        super().__init__(f"the process of the function ended during {calls} calls for this cell")
        self.calls = calls


class _Noted(NamedTuple):
    """What is noted of a shard, in the shape the router wants: with its state in sight."""

    state: ShardState
    seen: ClaimSeen | None


class Deaths:
    """The calls of one datastore's functions that did not end."""

    def __init__(self, router: Router, config: TriggerConfig) -> None:
        self._router = router
        self._config = config

    def claimed(self, group: str, held: Mapping[int, Held]) -> None:
        """Count the claims of these shards, and say of each up to where its cells are called for one at a time."""
        for shard, seen in self._claims(group, list(held)).items():
            each = held[shard]
            each.call = seen.call
            is_open = seen.call.calls > 0 and seen.call[:2] > (each.epoch, each.reached)
            if seen.claims >= CLAIMS_MAX or is_open:
                each.careful_until = min(each.head, each.reached + CAREFUL_PAGES * self._config.page_cells)
            if each.is_careful:
                extra = {"event": "triggers.careful", "group": group, "shard": shard, "claims": seen.claims}
                logger.info("an offset does not move, so cells are called for one at a time", extra=extra)

    def begin(self, group: str, held: Held, added_id: int) -> None:
        """Note that the function is called for a cell. Raises `ProcessDied` when it was called often enough."""
        before = held.call.calls if held.call[:2] == (held.epoch, added_id) else 0
        if before >= self._config.attempts:
            raise ProcessDied(before)
        self._note(group, held, CallNote(held.epoch, added_id, before + 1))
        reach("triggers.call_noted")

    def end(self, group: str, held: Held) -> None:
        """The function raised: it did not end the process. What returns is noted by the offset that passes it."""
        try:
            self._note(group, held, held.call._replace(calls=0))
        except SchemalessError as error:
            extra = {"event": "triggers.call_not_noted", "group": group, "error": error.message}
            logger.info("a call that ended counts as one that did not", extra=extra)

    def _note(self, group: str, held: Held, call: CallNote) -> None:
        shard, deadline = held.lease.shard, Deadline(SECONDS)

        def note(node: Node) -> _Noted:
            node.groups.note_call(group, shard, held.lease.fence, call, deadline)
            return _Noted(node.heads([shard], deadline)[shard].state, None)

        self._router.read(shard, note, _STANDING, "primary_only", deadline)
        held.call = call

    def _claims(self, group: str, shards: Collection[int]) -> dict[int, ClaimSeen]:
        """What is noted of the shards whose servers answer."""
        deadline = Deadline(SECONDS)

        def count(node: Node, part: Mapping[int, None]) -> dict[int, _Noted]:
            seen = node.groups.note_claims(group, list(part), deadline)
            heads = node.heads(list(part), deadline)
            return {shard: _Noted(heads[shard].state, seen.get(shard)) for shard in part if shard in heads}

        answers = self._router.read_each(dict.fromkeys(shards), count, _STANDING, "primary_only", deadline)
        noted = {shard: each for shard, each in answers.items() if isinstance(each, _Noted)}
        return {shard: each.seen for shard, each in noted.items() if each.seen is not None}
