"""Every error of the core, split by what the caller does next.

`Unavailable`: try again later, the write may or may not have happened and may be repeated. `Conflict`: two
truths for one key, a bug upstream. `Invalid`: fix the call. `StaleEpoch`: the wrong cluster or the wrong
authority was asked; the datastore repeats by itself and raises only when that did not help.
Each carries its facts as attributes, and a hint when a person can act.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from schemaless_core.referenced import Referenced
from schemaless_core.told import Told

if TYPE_CHECKING:  # errors are the ground: values import them, they only talk about values
    from schemaless_core.answers import PutResult
    from schemaless_core.cell import Cell


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


class ControlUnavailable(Unavailable):
    """The control database cannot be reached: cells keep flowing, changes wait."""


class ConnectionBroken(NodeUnavailable):
    """A pooled connection turned out to be dead at once; the call is repeated on a new one."""


class Conflict(SchemalessError):
    """Something else is already there. Repeating will not help."""


class CellConflict(Conflict):
    """Another body is stored under this key, or the column's latest cell is not the expected one."""

    def __init__(
        self, attempted: Cell, stored: Cell | None, *, expected: int | None = None, is_damaged: bool = False
    ) -> None:
        key = f"({attempted.row_key}, {attempted.column_name}, {attempted.ref_key})"
        if is_damaged:
            what = f"{key} meets bytes that are no JSON"
        elif stored is not None and stored.key == attempted.key:
            what = f"{key} already holds another body"
        else:
            found = "no cell" if stored is None else f"ref key {stored.ref_key}"
            wanted = "no cell" if expected is None else f"ref key {expected}"
            what = f"{key} was to follow {wanted}, but the column's latest is {found}"
        hint = "Read the stored cell, then write your change under a higher ref key."
        if stored is None:
            hint = "The column is empty: expect None, if the change does not build on a cell that you saw elsewhere."
        super().__init__(f"{what}.", hint="`tripstore repair` mends what a diff finds." if is_damaged else hint)
        self.attempted = attempted
        self.stored = stored
        self.expected = expected
        #: Whether what stands there cannot be read: `stored` is None then.
        self.is_damaged = is_damaged


class TopologyConflict(Conflict):
    """Somebody else changed the topology first."""


class DocumentConflict(Conflict):
    """Somebody else changed a document of the control database first."""

    def __init__(self, name: str, expected_version: int) -> None:
        wanted = f"is not at version {expected_version} any more" if expected_version else "exists already"
        super().__init__(f"Document {name} {wanted}.", hint="Look at it as it is now, then decide again.")
        self.name = name
        self.expected_version = expected_version


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


class InvalidServer(Invalid):
    """A server that can be reached but may not hold cells: wrong kind, version, login or durability."""

    def __init__(self, node: str, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"{node} cannot be used: {reason}.", hint=hint)
        self.node = node
        self.reason = reason


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
        #: RW, COPY, RO or MOVED, as the shard said.
        self.status = status
        self.reason = reason
        #: Whether it is where the caller looked, and another authority's: to look for it elsewhere cannot help.
        self.is_of_authority = is_of_authority


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


class BatchFailed(SchemalessError):
    """Some cells of a batch were not stored; `results` has one result or error per cell, in order."""

    def __init__(self, results: Sequence[PutResult | SchemalessError]) -> None:
        failures = [result for result in results if isinstance(result, SchemalessError)]
        first = f" The first: {failures[0]}" if failures else ""
        super().__init__(
            f"{len(failures)} of {len(results)} cells were not stored.{first}",
            hint="`results` says it of each cell; what was unavailable may be put again.",
        )
        self.results = list(results)


def _whole_kibibytes(packet_bytes: int) -> int:
    """Servers round their limit down to these, and take what is below it."""
    return (packet_bytes // 1024 + 1) * 1024


def first_error(answers: Iterable[object]) -> SchemalessError | None:
    """The error to raise of many answers: who is not the authority's caller any more is told before all else."""
    errors = [answer for answer in answers if isinstance(answer, SchemalessError)]
    refusals = (error for error in errors if isinstance(error, StaleEpoch) and error.is_of_authority)
    return next(refusals, errors[0] if errors else None)


def missing_shard(shard: int) -> SchemaMissing:
    """What a server says of a shard that it does not hold."""
    return SchemaMissing(f"Shard {shard} is not on this server.", hint="Run `tripstore schema apply`.")
