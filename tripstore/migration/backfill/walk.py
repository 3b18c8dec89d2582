"""`BlockWalk`: whether the past is read by blocks, what is made for that, and what is asked of it at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import NamedTuple, cast

import msgspec
import psycopg2
from psycopg2 import errors as postgres
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter

from schemaless_core.cell.canonical import Json
from tripstore.backends.postgres.capture.timeline import ServerIdentity, find_server
from tripstore.backends.postgres.errors import LegacyUnavailable
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.walk.leaves import LeafFile, LeafIdentity, find_leaves, why_unfit
from tripstore.backends.postgres.walk.moves import MoveNotes, row_keys
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.engines.backfill.errors import CannotCopy
from tripstore.handover.ports import WalkedLeaf
from tripstore.migration.backfill.walk_end import EndPortion, EndStage

logger = logging.getLogger(__name__)

#: Of a job's spec.
WALKED = "walked"
#: With fewer blocks a table is soon in Postgres' memory, and row keys are as good: 128 MB.
BLOCKS_LEAST = 16_384


class WalkKind(StrEnum):
    """In which order the past is read."""

    BLOCKS = "blocks"  #: As the tables' files have it: each block once.
    KEYS = "keys"  #: By row key: a part of the rows, and where blocks cannot be walked.


class WalkChoice(NamedTuple):
    """Which walk it is, and why not the other."""

    kind: WalkKind
    why: str
    leaves: Sequence[LeafFile] = ()


class WalkRecord(msgspec.Struct, frozen=True):
    """What a walk relies on: in the spec of its job."""

    notes: str
    #: By table: name, OID, file and trigger of each leaf, when moves were noted and no block was read yet.
    leaves: dict[str, list[LeafIdentity]]
    #: The Postgres whose blocks were counted. One that was promoted, or restored, may lack what changed there.
    server: ServerIdentity | None = None


def leave_all(connection: Connection) -> None:
    """Which walks go on is not known."""


class BlockWalk:
    """Of one process. Each call has a connection of its own: there are few."""

    def __init__(self, url: str, layout: Layout, clear: Callable[[Connection], None] = leave_all) -> None:
        self._url = url
        self._layout = layout
        #: Drops what other walks left. It knows their jobs.
        self._clear = clear

    def choose(self, wanted: str | None, *, is_partial: bool) -> WalkChoice:
        """`wanted`: None, as is best. `CannotCopy`: blocks are wanted, and cannot be walked."""
        if wanted == WalkKind.KEYS:
            return WalkChoice(WalkKind.KEYS, "as wanted")
        if is_partial:
            return self._by_keys(wanted, "a part of the rows or columns is found by row keys")
        with self._connected() as connection:
            leaves = find_leaves(connection, self._layout)
            unfit = why_unfit(connection, leaves)
        if unfit is not None:
            return self._by_keys(wanted, unfit)
        blocks = sum(leaf.blocks for leaf in leaves)
        if wanted is None and blocks < BLOCKS_LEAST:
            return WalkChoice(WalkKind.KEYS, f"the tables have {blocks:,} blocks, which Postgres' memory holds")
        return WalkChoice(WalkKind.BLOCKS, f"the tables have {blocks:,} blocks", leaves)

    def begin(self) -> tuple[WalkRecord, Sequence[LeafFile]]:
        """Note moves from now on; what stands in these leaves by then is what is to be read.

        `LegacyUnavailable`: no lock on a table could be had.
        """
        notes = MoveNotes.new()
        with self._connected() as connection:
            notes.make(connection, self._layout)
            server = find_server(connection)
            leaves = find_leaves(connection, self._layout, notes.trigger)
            unseen = next((leaf for leaf in leaves if leaf.trigger is None), None)
            if unseen is not None:
                notes.drop(connection)
                raise LegacyUnavailable(f"{unseen.name} has changed just now.", hint="Run the same command again.")
        return WalkRecord(notes.name, _identities(leaves), server), leaves

    def prepared(self, record: WalkRecord, portion: EndPortion, rows_wanted: int) -> EndPortion:
        """A part of the end with all that its next chunk needs; or it is through, and there is nothing more to do."""
        if portion.until is EndStage.LAST:  # in whichever Postgres: the last part looks which one it was
            return _further(portion)
        with self._connected() as connection:
            portion = self._of_one_server(connection, record, portion)
            if portion.stage is EndStage.LOOK:
                portion = self._looked(connection, record, portion).at(EndStage.OURS)
            if portion.stage is EndStage.MOVED:
                portion = self._moved(connection, record, portion, rows_wanted)
            portion = _further(portion)
            if portion.stage is EndStage.LAST and not portion.is_through:
                MoveNotes(record.notes).drop(connection)
                self._clear(connection)
                return portion.at(EndStage.DONE)
        return portion

    def clear(self) -> None:
        """Drop what other walks left, if Postgres lets us: it is no reason to begin nothing."""
        try:
            with self._connected() as connection:
                self._clear(connection)
        except (CannotCopy, LegacyUnavailable) as error:
            extra = {"event": "backfill.not_cleared"}
            logger.warning("what earlier walks by blocks left stays for now: %s", error.message, extra=extra)

    def drop(self, record: WalkRecord) -> None:
        """Moves are noted no more."""
        with self._connected() as connection:
            MoveNotes(record.notes).drop(connection)

    def _by_keys(self, wanted: str | None, why: str) -> WalkChoice:
        if wanted == WalkKind.BLOCKS:
            raise CannotCopy(f"The past cannot be read by blocks: {why}.", hint="Leave --walk out: it is read by keys.")
        return WalkChoice(WalkKind.KEYS, why)

    def _of_one_server(self, connection: Connection, record: WalkRecord, portion: EndPortion) -> EndPortion:
        """The portion, or one in which all is read again: another Postgres answers than the one that was read of.

        It may have rows, blocks and files that the one before had otherwise by then, and that no longer differ from
        what the walk began with. So it is asked for before each chunk of the end, and after the last.
        """
        now = find_server(connection)
        if now == (portion.server or record.server):
            return portion
        leaves = self._leaves(connection, record)
        _tell("Postgres is another one than the walk began with: its tables are read by row keys", leaves)
        return portion.anew(now, list(map(_walked, leaves)))

    def _looked(self, connection: Connection, record: WalkRecord, portion: EndPortion) -> EndPortion:
        """With the leaves that were not walked."""
        leaves = self._leaves(connection, record)
        if not MoveNotes(record.notes).are_whole(connection):
            _tell("not all moves were noted: tables are read by row keys", leaves)
            return portion.unwalked(list(map(_walked, leaves)), is_all=True)
        changed = self._unwalked(record, leaves)
        if changed:
            _tell("tables were written anew while they were walked: they are read by row keys", changed)
        return portion.unwalked(list(map(_walked, changed)))

    def _unwalked(self, record: WalkRecord, leaves: Sequence[LeafFile]) -> Sequence[LeafFile]:
        """The leaves of which rows may have been missed: they are new, or a file or a trigger is not what it was.

        What was read is of those that the walk began with, so what is as it was now was so all the time: neither an OID
        nor a file comes back on one Postgres, nor the number of the transaction that changed a trigger last. A leaf
        that is gone took its rows along; where they came into another one, that is captured.
        """
        walked = {leaf for its in record.leaves.values() for leaf in map(_comparable, its)}
        return [leaf for leaf in leaves if _comparable(leaf.identity) not in walked]

    def _moved(self, connection: Connection, record: WalkRecord, portion: EndPortion, rows_wanted: int) -> EndPortion:
        """With the next rows that moved. They are not known where a crash took the notes since the end has looked."""
        notes = MoveNotes(record.notes)
        if not notes.are_kept(connection):
            leaves = self._leaves(connection, record)
            _tell("the notes of moves are lost: tables are read by row keys", leaves)
            return portion.unwalked(list(map(_walked, leaves)), is_all=True).at(EndStage.AGAIN)
        page = rows(connection, notes.page_sql(portion.note, portion.upto_note or None, rows_wanted))
        if not page:
            return portion.at(EndStage.AGAIN)
        return portion._replace(upto_note=page[-1][0], keys=tuple(row_keys(page)))

    def _leaves(self, connection: Connection, record: WalkRecord) -> Sequence[LeafFile]:
        """All there are now."""
        return find_leaves(connection, self._layout, MoveNotes(record.notes).trigger)

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        try:
            with connected(self._url, "backfill") as connection:
                yield connection
        except postgres.InsufficientPrivilege as refused:
            hint = "A walk is served by members of the role that began it. `tripstore schema grants` says how."
            raise CannotCopy(f"Postgres refuses what a walk needs ({refused}).", hint=hint) from refused
        except (psycopg2.OperationalError, psycopg2.InterfaceError) as lost:
            raise LegacyUnavailable(f"Postgres ended the session ({lost}).", hint="Repeat the command.") from lost


def record_of(spec: Mapping[str, Json]) -> WalkRecord | None:
    """What the walk of a job relies on; None: it goes by row keys."""
    found = spec.get(WALKED)
    return None if found is None else msgspec.convert(found, WalkRecord)


def document_of(record: WalkRecord) -> Json:
    return cast(Json, msgspec.json.decode(msgspec.json.encode(record)))  # lists, and no tuples


def _further(portion: EndPortion) -> EndPortion:
    """Past the leaves, when all of them were read again."""
    if portion.stage is EndStage.AGAIN and not portion.is_through and portion.through >= len(portion.again):
        return portion.at(EndStage.LAST)
    return portion


def _walked(leaf: LeafFile) -> WalkedLeaf:
    return WalkedLeaf(leaf.table.sql, leaf.name.sql, leaf.oid)


def _comparable(leaf: LeafIdentity) -> tuple[object, ...]:
    name, oid, filenode, trigger = leaf
    return name, oid, filenode, None if trigger is None else tuple(trigger)


def _tell(what: str, leaves: Sequence[LeafFile]) -> None:
    logger.warning(what, extra={"event": "backfill.not_walked", "tables": [str(leaf.name) for leaf in leaves]})


def _identities(leaves: Sequence[LeafFile]) -> dict[str, list[LeafIdentity]]:
    tables = dict.fromkeys(leaf.table.sql for leaf in leaves)
    return {table: sorted(leaf.identity for leaf in leaves if leaf.table.sql == table) for table in tables}
