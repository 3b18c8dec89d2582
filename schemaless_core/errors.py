"""Errors of the core, split by what the caller does next. The two that carry cells: `cell/put_errors.py`.

`Unavailable`: try again later, the write may or may not have happened and may be repeated. `Conflict`: two
truths for one key, a bug upstream. `Invalid`: fix the call. `StaleEpoch`: the wrong cluster or the wrong
authority was asked; the datastore repeats by itself and raises only when that did not help.
Each carries its facts as attributes, and a hint when a person can act.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from schemaless_core.referenced import Referenced
from schemaless_core.told import Told

#: Characters of a caller's value that an error repeats.
SHOWN_MAX = 80


def shown(value: object) -> str:
    """A value as an error shows it: short, printable, whatever it is."""
    if isinstance(value, Referenced):
        return f"a text of {len(value)} characters"
    try:
        text = repr(value)
    except ValueError:  # Python refuses to write ints of thousands of digits
        return f"(a {type(value).__name__} too long to write)"
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


class SchemalessError(Told):
    """Base of everything the core raises on purpose."""


class Unavailable(SchemalessError):
    """Try later. A write that met this may have happened; repeating it is safe."""


class NodeUnavailable(Unavailable):
    """One server did not answer in time, refused the connection, or its breaker is open."""

    def __init__(
        self,
        node: str,
        reason: str,
        *,
        hint: str | None = None,
        trips_breaker: bool = True,
        is_of_writes: bool = False,
        is_timeout: bool = False,
        is_read_only: bool = False,
    ) -> None:
        super().__init__(f"{node} is unavailable: {reason}.", hint=hint)
        self.node = node
        self.reason = reason
        #: Whether it says something of the whole server, not of one lock or of our own pool.
        self.trips_breaker = trips_breaker
        #: Whether the server refuses or cannot finish writes, which says nothing of reads.
        self.is_of_writes = is_of_writes
        #: Whether the deadline passed without an answer.
        self.is_timeout = is_timeout
        #: Whether the server is set to take no writes: by an operator, or by a promotion.
        self.is_read_only = is_read_only


class BufferFull(Unavailable):
    """A cell's own cluster does not take it, and the buffers of the others take no more."""

    def __init__(self, cluster: str, reason: str) -> None:
        super().__init__(
            f"{reason.rstrip('.')}, and the buffer of {cluster} is full.",
            hint="Bring the cell's own cluster back; `tripstore buffer status` shows what waits. buffer.max_cells and "
            "buffer.max_bytes say how much may.",
        )
        self.cluster = cluster


class ControlUnavailable(Unavailable):
    """The control database cannot be reached: cells keep flowing, changes wait."""


class CoordinatorUnavailable(Unavailable):
    """ZooKeeper cannot be asked which worker serves what: cells keep flowing, shards stay where they are."""

    def __init__(self, coordinator: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(
            f"The coordinator {coordinator} is unavailable: {reason}.",
            hint=hint or "Start ZooKeeper, or mend triggers.coordinator. Workers deliver what they hold meanwhile.",
        )
        self.coordinator = coordinator
        self.reason = reason


class ConnectionBroken(NodeUnavailable):
    """A pooled connection turned out to be dead at once; the call is repeated on a new one."""


class Conflict(SchemalessError):
    """Something else is already there. Repeating will not help."""


class DictionaryMissing(SchemalessError):
    """A compressed body whose dictionary its server has not: no call can say what it is."""

    def __init__(self, node: str, dictionary: str) -> None:
        super().__init__(
            f"{node} holds a body that was compressed with dictionary {dictionary}, and has not that dictionary.",
            hint="`tripstore schema apply` brings each server the dictionaries that the others have.",
        )
        self.node = node
        self.dictionary = dictionary


class CellPurged(Conflict):
    """A key that was purged: by whatever way it comes, it is never stored again."""

    def __init__(self, purged_key: tuple[bytes, bytes, int], up_to: int) -> None:
        row_key, column_name, self.ref_key = purged_key
        self.row_key, self.column_name = UUID(bytes=row_key), column_name.decode()
        #: Up to which ref key the column was purged.
        self.up_to = up_to
        if self.is_of_row:
            super().__init__(
                f"Row {self.row_key} was purged: nothing of it is stored again.",
                hint="Nothing was written. Give what is new a row key of its own.",
            )
        else:
            super().__init__(
                f"({self.row_key}, {self.column_name}, {self.ref_key}) is below what is kept: up to ref key {up_to}, "
                "superseded versions of its column were purged.",
                hint="Read the column's latest cell, then write your change under a higher ref key.",
            )

    @property
    def is_of_row(self) -> bool:
        """Whether the whole row was purged."""
        return self.up_to == 2**63 - 1


class TopologyConflict(Conflict):
    """Another process changed the topology first."""


class DocumentConflict(Conflict):
    """Another process changed a document of the control database first."""

    def __init__(self, name: str, expected_version: int) -> None:
        wanted = f"is not at version {expected_version} any more" if expected_version else "exists already"
        super().__init__(f"Document {name} {wanted}.", hint="Look at it as it is now, then decide again.")
        self.name = name
        self.expected_version = expected_version


class MoveRefused(Conflict):
    """A shard cannot be moved as was asked, or its move cannot go on."""


class CopyDiffers(Conflict):
    """A part of a copied log is not the log, however often it is copied."""

    def __init__(self, shard: int, first: int, last: int) -> None:
        super().__init__(
            f"The copy of shard {shard} differs from its log between added ids {first} and {last}.",
            hint="Run `tripstore fsck` on both clusters, then go on with the move: nothing has changed for callers.",
        )
        self.shard = shard
        self.first = first
        self.last = last


class Invalid(SchemalessError):
    """The call itself is wrong; nothing was read or written."""


class InvalidCell(Invalid):
    """A key or body that no cell may have; `path` names the culprit inside the body."""

    def __init__(self, reason: str, *, path: str = "", hint: str | None = None) -> None:
        where = f" at {path}" if path else ""
        super().__init__(f"Invalid cell{where}: {reason}.", hint=hint)
        self.path = path
        self.reason = reason


class InvalidRequest(Invalid):
    """A limit, location, shard or option outside what the call allows."""


class StoreClosed(InvalidRequest):
    """A call to a store after its `close`."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"The {what} is closed.", hint=hint)
        self.what = what


class PositionUnknown(InvalidRequest):
    """A position that the log of its shard never had: beyond its head, or of an epoch that was never opened."""

    def __init__(self, shard: int, epoch: int, added_id: int, head_epoch: int, head: int) -> None:
        super().__init__(
            f"Shard {shard} has no position {added_id} of epoch {epoch}: its log ends at {head} in epoch {head_epoch}.",
            hint="If the shard was restored from a backup, read on from a time before that backup; "
            "`tripstore triggers reset` does so for a group.",
        )
        self.shard = shard
        self.epoch = epoch
        self.added_id = added_id
        self.head_epoch = head_epoch
        self.head = head


class InvalidConfig(Invalid):
    """A configuration key, value or file that cannot be used; names the key, the value and a fix."""

    def __init__(self, key: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"Configuration {key}: {reason}.", hint=hint)
        self.key = key
        self.reason = reason


class LedElsewhere(InvalidConfig):
    """The datastore takes no calls: it is a standby of another one, or another one has taken the lead from it."""

    def __init__(self) -> None:
        super().__init__(
            "datastore",
            "is a standby, or another datastore has the lead by now",
            hint="Open the one that leads: `tripstore replicate status` names it. Or promote this one.",
        )


class ReplicationRefused(Conflict):
    """A datastore cannot follow another one, or lead instead of it, as was asked. What is done stays done."""


class PromotionRefused(Conflict):
    """Another server cannot become the primary now. What a promotion has done stays, and it may be gone on with."""


class PromotionOvertaken(PromotionRefused):
    """Another process has gone on with the promotion meanwhile."""


class ServerInHand(PromotionRefused):
    """Another promotion works at a server."""

    def __init__(self, node: str) -> None:
        super().__init__(
            f"Another promotion has {node} in hand.",
            hint="Wait for it, or end its process: 20 seconds later the server is free. Then run this again.",
        )


class InvalidServer(Invalid):
    """A server that can be reached but may not hold cells: wrong kind, version, login or durability."""

    def __init__(self, node: str, reason: str, *, hint: str | None = None, lacks_right: bool = False) -> None:
        super().__init__(f"{node} cannot be used: {reason}.", hint=hint)
        self.node = node
        self.reason = reason
        #: Whether another login may do what was asked.
        self.lacks_right = lacks_right


class PacketTooLarge(InvalidServer):
    """A statement is larger than the server takes in one packet. It was not sent."""

    def __init__(self, node: str, packet_bytes: int, bytes_max: int) -> None:
        super().__init__(
            node,
            f"a packet of {packet_bytes:,} bytes does not fit into its max_allowed_packet of {bytes_max:,}",
            hint=f"SET GLOBAL max_allowed_packet = {_whole_kibibytes(packet_bytes)} or more, and write it into its "
            "configuration; `tripstore doctor` says how much max_body_bytes needs.",
        )
        self.packet_bytes = packet_bytes
        self.bytes_max = bytes_max


class UnknownFormat(InvalidServer):
    """The tables of the datastore have a format that this library does not know: they are neither read nor written."""

    def __init__(self, node: str, found: int, known: str, version: str | None, *, goes_on: bool = False) -> None:
        wanted = f"tripstore {version}" if version else "the version of tripstore that made it"
        super().__init__(
            node,
            f"its tables have format {found}, and this library knows {known}",
            hint=f"Use {wanted}; docs/howto/upgrade.md says how to go from one format to the next.",
        )
        self.found = found
        self.known = known
        self.version = version
        #: Whether a process that runs already may read and write them.
        self.goes_on = goes_on


class SchemaMissing(Invalid):
    """The datastore, or one shard of it, has not been created on this server."""


class IndexMissing(SchemaMissing):
    """The tables of an index version are not on this server: not yet, or no more."""

    def __init__(self, node: str, table: str) -> None:
        super().__init__(
            f"{node} has no index tables {table}.",
            hint="Look at the index's versions again; `tripstore index status` shows them.",
        )
        self.node = node
        self.table = table


class StaleEpoch(SchemalessError):
    """The shard is not open for this caller: another cluster owns it, or another backend is the authority."""

    def __init__(
        self, shard: int, status: str, reason: str, *, hint: str | None = None, is_of_authority: bool = False
    ) -> None:
        super().__init__(f"Shard {shard} refuses: {reason}.", hint=hint)
        self.shard = shard
        #: RW, COPY, RO, MOVED or UNLEASED, as the shard said.
        self.status = status
        self.reason = reason
        #: Whether it is where the caller looked, and another authority's: to look for it elsewhere cannot help.
        self.is_of_authority = is_of_authority

    @property
    def is_passing(self) -> bool:
        """Whether the same backend takes it in a moment: at another server, or at an epoch that is not heard of yet."""
        return not self.is_of_authority


class BackupRefused(Conflict):
    """A backup or a restore cannot begin, or go on, as things are."""


class BackupDamaged(SchemalessError):
    """A file of a backup is not there, or is not as it was written."""

    def __init__(self, file: str, reason: str) -> None:
        super().__init__(
            f"{file} {reason}.",
            hint="`tripstore backup verify` names all that is damaged; restore from a backup that does not name this "
            "file, and make a new one: `tripstore backup create --full`.",
        )
        self.file = file
        self.reason = reason


class FolderUnavailable(Unavailable):
    """The folder of the backups cannot be read or written."""

    def __init__(self, place: str, reason: str, file: str = "") -> None:
        """`file`: that it was asked for, or given; empty: it was the folder itself."""
        of_file = f" of {file}" if file else ""
        hint = "Mend that, then go on with --resume."
        super().__init__(f"{place} does not do what is asked{of_file}: {reason}.", hint=hint)
        self.place = place
        self.reason = reason
        self.file = file


class LogHole(SchemalessError):
    """I3 is broken: the log of a shard misses an added id that must be there."""

    def __init__(self, shard: int, missing: int, head: int, *, is_damaged: bool = False) -> None:
        what = "has bytes that are no JSON at" if is_damaged else "misses"
        super().__init__(
            f"The log of shard {shard} {what} added id {missing} (head {head}).",
            hint="Restore the cell from a replica or a backup, or compare and repair: `tripstore diff start`, then "
            "`tripstore repair`.",
        )
        self.shard = shard
        self.missing = missing
        self.head = head


def _whole_kibibytes(packet_bytes: int) -> int:
    """Servers round their limit down to these, and take what is below it."""
    return (packet_bytes // 1024 + 1) * 1024


def first_error(answers: Iterable[object]) -> SchemalessError | None:
    """The error to raise of many answers: that the authority has changed comes before all others."""
    errors = [answer for answer in answers if isinstance(answer, SchemalessError)]
    refusals = (error for error in errors if isinstance(error, StaleEpoch) and error.is_of_authority)
    return next(refusals, errors[0] if errors else None)


def missing_shard(shard: int) -> SchemaMissing:
    """What a server says of a shard that it does not hold."""
    return SchemaMissing(f"Shard {shard} is not on this server.", hint="Run `tripstore schema apply`.")
