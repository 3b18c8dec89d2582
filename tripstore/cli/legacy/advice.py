"""What the legacy tables lack: for queries to be quick, and for a number to be given once.

Advice of `schema plan`, notes of the doctor; nothing here carries it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from psycopg2.extensions import connection as Connection  # noqa: N812  # the driver's class has a small letter
from rich.text import Text

from schemaless_core.definitions.index import IndexDefinition
from tripstore.backends.postgres.layout.complaints import Complaint, error, note
from tripstore.backends.postgres.layout.layout import Layout
from tripstore.backends.postgres.numbers.sequences import read_barred, read_cached
from tripstore.backends.postgres.queries.proposals import (
    IndexProposal,
    LiveIndexes,
    Proposals,
    Unsearchable,
    proposed_indexes,
    unkeyed_tables,
)
from tripstore.backends.postgres.wire.connections import rows


class AdviceDocument(msgspec.Struct, frozen=True):
    """Something to decide by a person: an index costs room, and time of each write."""

    where: str
    reason: str
    hint: str
    #: To be run in this order, each outside of a transaction.
    statements: list[str]


def advised(connection: Connection, layout: Layout, indexes: Sequence[IndexDefinition]) -> list[AdviceDocument]:
    """What queries of these indexes lack, and what is wrong with sequences of numbers. Changes nothing."""
    missing = _documents(proposed_indexes(layout, indexes, LiveIndexes.read(connection, layout)))
    return missing + _barred(connection, layout) + _caches(connection, layout)


def advice_notes(connection: Connection, layout: Layout, indexes: Sequence[IndexDefinition]) -> list[Complaint]:
    """The same as notes, and indexes on row keys that are missing. A sequence that we may not draw from is an error."""
    live = LiveIndexes.read(connection, layout)
    notes = [
        note(
            f"{table}.{column}",
            "no index leads with it, so each read of a row reads the whole table",
            "`tripstore schema apply` makes one, CONCURRENTLY.",
        )
        for table, column in unkeyed_tables(layout, live)
    ]
    documents = _documents(proposed_indexes(layout, indexes, live)) + _caches(connection, layout)
    notes += [note(each.where, each.reason, each.hint or _joined(each.statements)) for each in documents]
    barred = _barred(connection, layout)
    return notes + [error(each.where, each.reason, _joined(each.statements)) for each in barred]


def advice_rows(advice: AdviceDocument) -> Iterator[tuple[Text, str, str]]:
    """Advice in a table, and what to run below."""
    yield Text("advice", style="yellow"), advice.where, advice.reason
    if advice.hint:
        yield Text(), "", f"→ {advice.hint}"
    for statement in advice.statements:
        yield Text(), "", f"  {statement};"


def _documents(found: Proposals) -> list[AdviceDocument]:
    return [*map(_missing, found.missing), *map(_unsearchable, found.unsearchable)]


def _barred(connection: Connection, layout: Layout) -> list[AdviceDocument]:
    found = read_barred(lambda sql, values: rows(connection, sql, values), layout)
    return [AdviceDocument(barred.where, barred.reason, "", [barred.statement]) for barred in found]


def _caches(connection: Connection, layout: Layout) -> list[AdviceDocument]:
    found = read_cached(lambda sql, values: rows(connection, sql, values), layout)
    return [
        AdviceDocument(
            f"sequence {sequence.name}",
            f"each session holds {cache} numbers, and later gives those that a caller has put in the meantime",
            "",
            [f"ALTER SEQUENCE {sequence.name} CACHE 1"],
        )
        for sequence, cache in found
    ]


def _missing(proposal: IndexProposal) -> AdviceDocument:
    table, column = proposal.searched
    reason = f"no index leads with it, so queries of {', '.join(proposal.needed_by)} read the whole table"
    return AdviceDocument(f"{table}.{column}", reason, "", list(proposal.statements))


def _unsearchable(found: Unsearchable) -> AdviceDocument:
    reason = f"each query reads all cells of {found.column}, as no index finds {found.field}: {found.reason}"
    hint = "Hold the field in a physical column of its own type, or let queries take as long as a scan."
    return AdviceDocument(f"index {found.index}", reason, hint, [])


def _joined(statements: Sequence[str]) -> str:
    return " ".join(f"{statement};" for statement in statements)
