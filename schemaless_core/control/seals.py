"""Seals of the audit log: each line is sealed together with the seal before it.

So a line that is changed, removed or put elsewhere is found by those who look (decision 71). One row, the head, has
the newest seal, and its lock makes the lines of all processes one chain. A process of an earlier version, and a control
database of one, have lines without seals.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import sqlalchemy as sa

from schemaless_core.cell.canonical import canonical_bytes
from schemaless_core.control.tables import audit, audit_head, audit_seal
from schemaless_core.errors import InvalidServer

#: Before the first line.
NO_SEAL = "0" * 64
#: Servers may be set to another level, by which each statement sees a moment of its own.
ONE_MOMENT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"


class AuditLine(NamedTuple):
    """A line of the audit log, as it is sealed."""

    entry: int
    at: str
    who: str
    host: str
    action: str
    detail: str


class SealedLine(NamedTuple):
    """A line with its place in the chain; None: it was never sealed."""

    line: AuditLine
    number: int | None
    seal: str | None


class SealHead(NamedTuple):
    """The newest seal, and the newest of those whose lines were pruned."""

    number: int
    seal: str
    pruned: int
    pruned_seal: str


class SealFault(NamedTuple):
    """What is wrong with the log, or, `is_open`, what nothing can be said of."""

    #: None: what is wrong is not there.
    entry: int | None
    said: str
    is_open: bool = False


#: Of a line behind the first sealed one.
UNSEALED = "has no seal: an earlier version or a login without that right wrote it, or it was added by hand"


def seal_of(before: str, number: int, line: AuditLine) -> str:
    return hashlib.sha256(canonical_bytes([before, number, *line])).hexdigest()


def add_sealed(connection: sa.Connection, values: dict[str, str]) -> bool:
    """Add a line and its seal; False, and nothing is added: there are no seals yet, or none that this login may add."""
    try:
        with _tried(connection):
            return _add_sealed(connection, values)
    except (sa.exc.ProgrammingError, sa.exc.OperationalError) as error:
        if not _is_of_earlier_version(error):
            raise
        return False


def _add_sealed(connection: sa.Connection, values: dict[str, str]) -> bool:
    if not connection.execute(sa.update(audit_head).values(number=audit_head.c.number + 1)).rowcount:
        return False
    number, before = connection.execute(sa.select(audit_head.c.number, audit_head.c.seal)).one()
    (entry,) = connection.execute(sa.insert(audit).values(values)).inserted_primary_key or (0,)
    seal = seal_of(before, number, AuditLine(entry, **values))
    try:
        connection.execute(sa.insert(audit_seal).values(entry=entry, number=number, seal=seal))
    except sa.exc.IntegrityError as error:  # not the lost compare-and-set that callers take it for
        hint = "Run `tripstore evidence verify`, and delete from audit_seal what it misses in audit."
        raise InvalidServer("control database", f"its audit log has lost line {entry:,}", hint=hint) from error
    connection.execute(sa.update(audit_head).values(seal=seal))
    return True


def _tried(connection: sa.Connection) -> AbstractContextManager[object]:
    """What fails in it leaves nothing. SQLite has no rights, and would end the transaction with the savepoint."""
    return nullcontext() if connection.dialect.name == "sqlite" else connection.begin_nested()


def prune_seals(connection: sa.Connection, entries: Iterable[int]) -> None:
    """Remove the seals of lines that go, the oldest; the head remembers where the rest begins."""
    its = audit_seal.c.entry.in_(list(entries))
    last = sa.select(audit_seal.c.number, audit_seal.c.seal).where(its).order_by(audit_seal.c.number.desc()).limit(1)
    try:
        with _tried(connection):
            # The head's lock first: another pruner may be at these lines, or beyond them.
            connection.execute(sa.update(audit_head).values(seat=audit_head.c.seat))
            newest = connection.execute(last).first()
            if newest is not None:
                later = sa.update(audit_head).where(audit_head.c.pruned < newest.number)
                connection.execute(later.values(pruned=newest.number, pruned_seal=newest.seal))
                connection.execute(sa.delete(audit_seal).where(its))
    except (sa.exc.ProgrammingError, sa.exc.OperationalError) as error:
        if not _is_of_earlier_version(error):
            raise


def read_sealed(connection: sa.Connection) -> tuple[SealHead, list[SealedLine]]:
    """The whole log in the order of its entries, and the head, as they are at one moment."""
    connection.execute(sa.text("BEGIN" if connection.dialect.name == "sqlite" else ONE_MOMENT))
    columns = (audit.c.id, audit.c.at, audit.c.who, audit.c.host, audit.c.action, audit.c.detail)
    both = audit.outerjoin(audit_seal, audit_seal.c.entry == audit.c.id)
    wanted = sa.select(*columns, audit_seal.c.number, audit_seal.c.seal).select_from(both).order_by(audit.c.id)
    head = _read_head(connection)
    lines = [SealedLine(AuditLine(*row[:6]), *row[6:]) for row in connection.execute(wanted)]
    return head, lines


def _read_head(connection: sa.Connection) -> SealHead:
    named = (audit_head.c.number, audit_head.c.seal, audit_head.c.pruned, audit_head.c.pruned_seal)
    head = connection.execute(sa.select(*named)).first()
    return SealHead(*(head or (0, NO_SEAL, 0, NO_SEAL)))


def seal_faults(head: SealHead, lines: Iterable[SealedLine]) -> Iterator[SealFault]:
    """What was done to the log since it was written. Lines before the first sealed one are of an earlier version."""
    expected, before, has_begun = head.pruned + 1, head.pruned_seal, False
    for line, number, seal in lines:
        if number is None or seal is None:
            if has_begun:
                yield SealFault(line.entry, UNSEALED, is_open=True)
            continue
        has_begun = True
        if number < expected:
            yield SealFault(line.entry, f"stands behind a later one: its number is {number:,}")
            continue
        if number > expected:
            yield SealFault(None, _missing(expected, number - 1))
        elif seal != seal_of(before, number, line):
            yield SealFault(line.entry, "is not as it was written")
        expected, before = number + 1, seal
    if head.number >= expected:
        yield SealFault(None, _missing(expected, head.number))
    elif before != head.seal:
        yield SealFault(None, "the head has another seal than the newest line")


def _missing(first: int, last: int) -> str:
    return f"number {first:,} is missing" if first == last else f"numbers {first:,} to {last:,} are missing"


def _is_of_earlier_version(error: sa.exc.DBAPIError) -> bool:
    """Whether tables are missing, or the rights of a role that was granted before there were such tables."""
    told = error.orig.args if error.orig is not None else ()
    return bool(told) and (told[0] in (1142, 1143, 1146) or "no such table" in str(told[-1]))
