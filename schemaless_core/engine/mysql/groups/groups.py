"""`MySQLGroups`: offsets and parked cells on one MySQL or MariaDB server. Leases a connection per verb."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from schemaless_core.cell.standing import Gate
from schemaless_core.cell.stored import NewCell, StoredCell
from schemaless_core.deadline import Deadline
from schemaless_core.engine.groups import (
    Beyond,
    CallNote,
    ClaimSeen,
    GroupStart,
    GroupStep,
    Offset,
    OffsetSeen,
    ParkedCell,
    ParkedKey,
    ParkedRow,
    Settling,
)
from schemaless_core.engine.mysql.groups import called, offsets, parking
from schemaless_core.engine.mysql.groups.joined import put_and_advance, put_and_settle
from schemaless_core.engine.mysql.names import Names
from schemaless_core.engine.mysql.wire.sessions import Sessions
from schemaless_core.errors import SchemaMissing


class MySQLGroups:
    """The tables of groups on one server."""

    def __init__(self, sessions: Sessions, names: Names) -> None:
        self._sessions = sessions
        self.names = names

    def begin(self, group: str, start: GroupStart, deadline: Deadline) -> None:
        self._sessions.write(lambda connection: offsets.begin(connection, self.names, group, start), deadline)

    def claim(self, group: str, fences: Mapping[int, int], deadline: Deadline) -> dict[int, OffsetSeen]:
        return self._sessions.write(lambda connection: offsets.claim(connection, self.names, group, fences), deadline)

    def find(self, group: str, shards: Collection[int], deadline: Deadline) -> dict[int, OffsetSeen]:
        return self._sessions.run(
            lambda connection: offsets.find(connection, self.names, group, list(shards)), deadline
        )

    def find_all(self, group: str, deadline: Deadline) -> dict[int, Offset]:
        return self._sessions.run(lambda connection: offsets.find_all(connection, self.names, group), deadline)

    def find_beyond(self, deadline: Deadline) -> list[Beyond]:
        return self._sessions.run(lambda connection: offsets.find_beyond(connection, self.names), deadline)

    def advance(self, group: str, steps: Mapping[int, GroupStep], deadline: Deadline) -> dict[int, OffsetSeen]:
        return self._sessions.write(lambda connection: offsets.advance(connection, self.names, group, steps), deadline)

    def note_claims(self, group: str, shards: Collection[int], deadline: Deadline) -> dict[int, ClaimSeen]:
        with suppress(SchemaMissing):  # until `schema apply` makes the table, no claim is counted
            return self._sessions.write(
                lambda connection: called.note_claims(connection, self.names, group, shards), deadline
            )
        return {}

    def note_call(self, group: str, shard: int, fence: int, call: CallNote, deadline: Deadline) -> None:
        self._sessions.write(
            lambda connection: called.note_call(connection, self.names, group, shard, fence, call), deadline
        )

    def put_and_advance(
        self, gate: Gate, group: str, cells: Sequence[NewCell], step: GroupStep, deadline: Deadline
    ) -> tuple[OffsetSeen, list[StoredCell]]:
        return self._sessions.write(
            lambda connection: put_and_advance(connection, self.names, gate, group, cells, step), deadline
        )

    def reset(self, group: str, to: Mapping[int, tuple[int, int]], deadline: Deadline) -> None:
        self._sessions.write(lambda connection: offsets.reset(connection, self.names, group, to), deadline)

    def remove(self, group: str, deadline: Deadline) -> None:
        self._sessions.write(lambda connection: offsets.remove(connection, self.names, group), deadline)
        with suppress(SchemaMissing):  # a server of an earlier version has noted no calls
            self._sessions.write(lambda connection: called.remove(connection, self.names, group), deadline)

    def parked(self, group: str, shard: int | None, limit: int, deadline: Deadline) -> list[ParkedRow]:
        return self._sessions.run(
            lambda connection: parking.parked(connection, self.names, group, shard, limit), deadline
        )

    def parked_of(self, group: str, shards: Collection[int], deadline: Deadline) -> list[ParkedRow]:
        return self._sessions.run(lambda connection: parking.parked_of(connection, self.names, group, shards), deadline)

    def parked_keys(self, group: str, shards: Collection[int], deadline: Deadline) -> list[ParkedKey]:
        return self._sessions.run(
            lambda connection: parking.parked_keys(connection, self.names, group, shards), deadline
        )

    def count_parked(self, group: str, deadline: Deadline) -> int:
        return self._sessions.run(lambda connection: parking.count(connection, self.names, group), deadline)

    def due(self, group: str, deadline: Deadline) -> set[int]:
        return self._sessions.run(lambda connection: parking.due(connection, self.names, group), deadline)

    def settle(self, group: str, shard: int, settling: Settling, deadline: Deadline) -> None:
        self._sessions.write(
            lambda connection: parking.settle(connection, self.names, group, shard, settling), deadline
        )

    def put_and_settle(
        self, gate: Gate, group: str, cells: Sequence[NewCell], settling: Settling, deadline: Deadline
    ) -> tuple[bool, list[StoredCell]]:
        return self._sessions.write(
            lambda connection: put_and_settle(connection, self.names, gate, group, cells, settling), deadline
        )

    def postpone(self, group: str, shard: int, fence: int, cell: ParkedCell, deadline: Deadline) -> None:
        self._sessions.write(
            lambda connection: parking.postpone(connection, self.names, group, shard, fence, cell), deadline
        )

    def retry(self, group: str, shard: int | None, added_id: int | None, deadline: Deadline) -> int:
        return self._sessions.write(
            lambda connection: parking.retry(connection, self.names, group, shard, added_id), deadline
        )
