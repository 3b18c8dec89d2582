"""What a hand-over owes to writers, judged by what the stores keep: histories, logs, and services' journals."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar
from uuid import UUID

from schemaless_core import Cell, CellKey, ColumnKey, Datastore, Position
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import AuthorityChange
from tests.chaos.switch_actors import MEANT
from tests.chaos.switch_journal import Line, Stored, journal
from tests.facades import Migration
from tripstore.backends.postgres.layout.layout import LEGACY_ID
from tripstore.handover.authority import Authority, Backend
from tripstore.migration.mirror.mirror import Mirror
from tripstore.ports.control import RealControlPort

T = TypeVar("T")

SECONDS = 10.0
AT_ONCE = 500
EXAMPLES = 5
CHILDREN = ("NOTES", "STATUS")

#: The first of each key comes last, and stays: a child that came before its parent is written down twice.
_CHANGES = """\
SELECT row_key::text, column_name, ref_key, origin, epoch FROM
(SELECT row_key, column_name, ref_key, origin, epoch, id FROM tripstore.log UNION ALL
SELECT row_key, column_name, ref_key, origin, epoch, id FROM tripstore.queue) AS changes ORDER BY id DESC"""
_WITNESSES = "SELECT row_key::text, column_name, token FROM witness"


class Change(NamedTuple):
    """What Postgres has written down of a cell."""

    origin: str | None
    epoch: int


class Evidence(NamedTuple):
    """All that there is, when everything is carried and all writers have ended."""

    cells: dict[CellKey, Cell]
    changes: dict[CellKey, Change]
    witnesses: list[tuple[str, str, str]]
    lines: list[Line]
    #: What the authority row was at each epoch.
    rows: dict[int, Authority]
    shards: dict[int, list[AuthorityChange]]

    def acknowledged(self) -> Iterator[Stored]:
        return (stored for line in self.lines for stored in line.stored)

    def change_of_shard(self, cell: Cell, shard: int) -> AuthorityChange:
        """At which authority epoch a cell was given its added id."""
        assert cell.added_id is not None
        return change_at(self.shards[shard], cell.added_id)

    def is_open(self, epoch: int, backend: Backend) -> bool:
        row = self.rows.get(epoch)
        return row is not None and row.is_open_for(backend)


def gather(moving: Migration, folder: Path) -> Evidence:
    control = moving.duo.ports.control
    assert isinstance(control, RealControlPort)
    changes = {
        CellKey(UUID(row_key), name, ref_key): Change(origin, epoch)
        for row_key, name, ref_key, origin, epoch in moving.legacy.sql(_CHANGES)
    }
    return Evidence(
        {CellKey(*cell.key): cell for cell in log_of(moving.facade.store)},
        changes,
        [(row_key, name, token) for row_key, name, token in moving.legacy.sql(_WITNESSES)],
        list(journal(folder)),
        {row.epoch: row for row in control.history(1_000_000)},
        authority_of_shards(moving.facade.store),
    )


def check(moving: Migration, evidence: Evidence) -> None:
    """Fail with all rules that are broken."""
    found = broken(moving, evidence)
    lines = [f"{rule}: {line}" for rule, breaches in found.items() for line in breaches]
    assert not lines, "\n".join([*lines, "", *map(str, evidence.rows.values())])


def broken(moving: Migration, evidence: Evidence) -> dict[str, list[str]]:
    """Which rules are broken, with examples; empty when all is well."""
    rules = {
        "acknowledged and not there": lost(moving, evidence),
        "committed by SQL and not there": lost_witnesses(evidence),
        "stored twice": twice(evidence),
        "what must not be": wrong(evidence),
        "set aside": set_aside(moving),
        "the stores differ": different(moving, evidence),
        "the latest differ": different_latest(moving, evidence),
        "a write of Postgres outside its epoch": outside_at_postgres(evidence),
        "a write of Schemaless outside its epoch": outside_at_schemaless(moving, evidence),
        "a shard went back": went_back(evidence),
    }
    found = {rule: list(breaches) for rule, breaches in rules.items()}
    return {rule: [f"{len(breaches)} in all", *breaches[:EXAMPLES]] for rule, breaches in found.items() if breaches}


def lost(moving: Migration, evidence: Evidence) -> Iterator[str]:
    """I1, I8: in neither store."""
    acknowledged = [stored.cell for stored in evidence.acknowledged()]
    theirs = at_postgres(moving, {CellKey(*cell.key) for cell in acknowledged})
    for cell in acknowledged:
        key = CellKey(*cell.key)
        if evidence.cells.get(key) != cell:
            yield f"Schemaless has {evidence.cells.get(key)} for {cell}"
        if theirs[key] != cell:
            yield f"Postgres has {theirs[key]} for {cell}"


def lost_witnesses(evidence: Evidence) -> Iterator[str]:
    """I8: whatever the writer lived to hear, a witness was committed with its change."""
    tokens = {
        (str(key.row_key), key.column_name, token_of(cell)) for key, cell in evidence.cells.items() if token_of(cell)
    }
    return (f"{witness}" for witness in evidence.witnesses if witness not in tokens)


def twice(evidence: Evidence) -> Iterator[str]:
    """A token is of one write."""
    count = Counter(filter(None, map(token_of, evidence.cells.values())))
    return (f"{token}: {number} times" for token, number in count.items() if number > 1 and token.startswith("f"))


def token_of(cell: Cell) -> str | None:
    body = cell.body
    if isinstance(body, dict):
        token = body.get(MEANT.get(cell.column_name, ""))
        return token if isinstance(token, str) else None
    return body[0] if isinstance(body, list) and isinstance(body[0], str) else None


def wrong(evidence: Evidence) -> Iterator[str]:
    return (f"{line.operation}: {line.detail}" for line in evidence.lines if line.event == "wrong")


def set_aside(moving: Migration) -> Iterator[str]:
    """I2: no conflict is of our own doing."""
    mirror = Mirror(moving.facade)
    for is_reverse in (False, True):
        for parked in mirror.parked(is_reverse=is_reverse).listed(100):
            yield f"{'reverse' if is_reverse else 'forward'}: {parked}"


def different(moving: Migration, evidence: Evidence) -> Iterator[str]:
    """I4: cell by cell, in both directions."""
    theirs = at_postgres(moving, evidence.cells)
    for key, cell in evidence.cells.items():
        if theirs[key] != cell:
            yield f"Schemaless has {cell}, Postgres {theirs[key]}"
    for key, change in evidence.changes.items():
        if key not in evidence.cells:
            yield f"Postgres has {key}, {change}, Schemaless has not"


def different_latest(moving: Migration, evidence: Evidence) -> Iterator[str]:
    """What the tables show, and the history of some."""
    columns = sorted({ColumnKey(key.row_key, key.column_name) for key in evidence.cells})
    legacy, store = moving.duo.legacy, moving.facade.store
    for some in _parts(columns):
        for column, here, there in zip(some, store.get_cells_latest(some), legacy.get_cells_latest(some), strict=True):
            if here != there:
                yield f"{column}: Schemaless has {here}, Postgres {there}"
    for column in columns[:: max(1, len(columns) // AT_ONCE)]:
        ours, other = (each.get_history(*column, limit=1000) for each in (store, legacy))
        if ours != other:
            yield f"{column}: Schemaless has {ours}, Postgres {other}"


def outside_at_postgres(evidence: Evidence) -> Iterator[str]:
    """I9, by the epoch that the gate gave each change: it was open then, and this is what the caller was told."""
    for key, change in evidence.changes.items():
        if change.origin != "reverse" and not evidence.is_open(change.epoch, Backend.LEGACY):
            yield f"{key}, {change}: {evidence.rows.get(change.epoch)}"
    for stored in evidence.acknowledged():
        if stored.added_id is not None:
            continue
        if not evidence.is_open(stored.epoch, Backend.LEGACY):
            yield f"{stored}: {evidence.rows.get(stored.epoch)}"
        elif stored.status == "CREATED" and not _is_its_change(stored, evidence):
            yield f"{stored}: {evidence.changes[CellKey(*stored.cell.key)]}"


def _is_its_change(stored: Stored, evidence: Evidence) -> bool:
    """A put may stay inside while a hand-over closes the gate in vain. Parents write children down once more."""
    change = evidence.changes[CellKey(*stored.cell.key)]
    if change.origin != "facade" or stored.column_name in CHILDREN:
        return change.origin == "facade"
    between = range(stored.epoch, change.epoch + 1)
    return stored.epoch <= change.epoch and all(evidence.rows[epoch].backend is Backend.LEGACY for epoch in between)


def outside_at_schemaless(moving: Migration, evidence: Evidence) -> Iterator[str]:
    """I9, by the added ids of each shard's epochs: what Postgres wrote came as a copy, all else while it was open."""
    shard_of = moving.facade.store.shard_of
    for key, cell in evidence.cells.items():
        if key.column_name == LEGACY_ID:
            continue
        given = evidence.change_of_shard(cell, shard_of(key.row_key))
        is_ours = key not in evidence.changes or evidence.changes[key].origin == "reverse"
        is_open = given.state == "RW" and evidence.is_open(given.authority_epoch, Backend.STORE)
        if is_ours != is_open:
            yield f"{cell}, {evidence.changes.get(key)}: {given}, {evidence.rows.get(given.authority_epoch)}"
    for stored in evidence.acknowledged():
        if stored.added_id is not None and stored.status == "CREATED":
            given = change_at(evidence.shards[stored.shard], stored.added_id)
            if given.state != "RW" or not evidence.is_open(given.authority_epoch, Backend.STORE):
                yield f"{stored}: {given}"


def went_back(evidence: Evidence) -> Iterator[str]:
    """No late switcher opens a shard at an epoch that is over."""
    for shard, history in evidence.shards.items():
        by_time = sorted(history, key=lambda change: (change.at, change.authority_epoch))
        if [change.authority_epoch for change in by_time] != sorted({change.authority_epoch for change in history}):
            yield f"shard {shard}: {by_time}"


def at_postgres(moving: Migration, keys: Iterable[CellKey]) -> dict[CellKey, Cell | None]:
    found: dict[CellKey, Cell | None] = {}
    for some in _parts(list(keys)):
        found.update(zip(some, moving.duo.legacy.get_cells(some), strict=True))
    return found


def log_of(store: Datastore) -> Iterator[Cell]:
    """Every cell that Schemaless has."""
    places: dict[int, int | Position] = dict.fromkeys(range(store.config.shards), 0)
    while True:
        pages = store.get_cells_for_shards(places, AT_ONCE)
        yield from (cell for page in pages.values() for cell in page.cells)
        if not any(page.cells for page in pages.values()):
            return
        places = {shard: page.position for shard, page in pages.items()}


def authority_of_shards(store: Datastore) -> dict[int, list[AuthorityChange]]:
    """From which added id on each shard was at which authority epoch, and whether owners could write."""
    found: dict[int, list[AuthorityChange]] = {}
    topology = store.schema.plan().topology
    for cluster in topology.clusters:
        ask = store.clusters[cluster].primary.ask
        for shard in topology.shards_of(cluster):
            found[shard] = ask(lambda node, shard=shard: node.authority_history(shard, Deadline(SECONDS)))  # type: ignore[misc]  # mypy knows no default of a lambda
    return found


def change_at(history: Sequence[AuthorityChange], added_id: int) -> AuthorityChange:
    """Under which authority epoch an added id was given."""
    return history[bisect_right([change.first_added_id for change in history], added_id) - 1]


def _parts(whole: Sequence[T]) -> Iterator[Sequence[T]]:
    return (whole[first : first + AT_ONCE] for first in range(0, len(whole), AT_ONCE))
