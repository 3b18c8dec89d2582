"""Phase × operation × failure of either side: who is called, in which order, and what the caller gets (I10).

The stores are real; at their edge each call is written down, and may be made to fail.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, CellKey, ColumnKey, Json, SchemalessError, Unavailable
from tests.facades import Migration, migration
from tests.indexing import catch_up
from tests.stores import Stores
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.schemaless.backend import SchemalessBackend
from tripstore.handover.authority import Backend
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase
from tripstore.store import TripStore

BY_TAG: Json = {
    "table": "by_tag",
    "column_defs": [{"column_key": "FREE", "fields": [{"field": "tag", "type": "string"}]}],
}
#: Every read is replayed, and patiently.
COHORT_SECONDS = 0.25
SHADOW = {"share": 1.0, "per_second": 86_000.0, "deadline_seconds": 20.0}


@dataclass(frozen=True)
class Seen:
    """A row that both stores hold, and one that is written to; in other shards."""

    key: UUID
    legacy_id: int
    written: UUID


Call = Callable[[TripStore, Seen], Any]

WRITES: dict[str, Call] = {
    "put_cell": lambda store, seen: store.put_cell(seen.written, "FREE", uuid4().int >> 66, "body"),
    "put_cells": lambda store, seen: store.put_cells(
        [Cell(seen.written, "FREE", uuid4().int >> 66, n) for n in (1, 2)]
    ),
    "append_cell": lambda store, seen: store.append_cell(seen.written, "EVENTS", "body"),
}
#: Reads of rows, or of a shard value: a cohort may be answered by the mirror.
READS: dict[str, Call] = {
    "get_cell": lambda store, seen: store.get_cell(seen.key, "FREE", 1),
    "get_cell_latest": lambda store, seen: store.get_cell_latest(seen.key, "BASE"),
    "get_cells": lambda store, seen: store.get_cells([CellKey(seen.key, "FREE", 1), CellKey(seen.key, "FREE", 9)]),
    "get_cells_latest": lambda store, seen: store.get_cells_latest([ColumnKey(seen.key, "BASE")]),
    "get_row": lambda store, seen: store.get_row(seen.key, ["BASE", "FREE"]),
    "get_history": lambda store, seen: store.get_history(seen.key, "FREE"),
    "query_index": lambda store, seen: store.query_index("by_tag", str(seen.key)),
    "resolve_id": lambda store, seen: store.resolve_id(seen.legacy_id),
    "resolve_ids": lambda store, seen: store.resolve_ids([seen.legacy_id]),
    "legacy_id": lambda store, seen: store.legacy_id(seen.key),
    "legacy_ids": lambda store, seen: store.legacy_ids([seen.key]),
}
#: Reads that never are: what they ask for must be as it is now, or has no key.
EXACT_READS: dict[str, Call] = {
    "query_index verified": lambda store, seen: store.query_index("by_tag", str(seen.key), consistency="verified"),
    "scan_rows": lambda store, seen: store.scan_rows(store.shard_of(seen.key), UUID(int=seen.key.int - 1), 1),
}
#: Neither cohorts nor shadow reads.
OTHERS: dict[str, Call] = {
    "checksum": lambda store, seen: store.checksum(store.shard_of(seen.key)),
}
#: Schemaless' own, in every phase but off.
LOG_READS: dict[str, Call] = {
    "get_cells_for_shard": lambda store, seen: store.get_cells_for_shard(store.shard_of(seen.key), 0, 1).head >= 0,
    "get_cells_for_shards": lambda store, seen: list(store.get_cells_for_shards({store.shard_of(seen.key): 0}, 1)),
}
CALLS = WRITES | READS | EXACT_READS | OTHERS | LOG_READS


class Down(Unavailable):
    """A store that does not answer, and says so."""


class Garbage(Exception):
    """A fault in a store's own code."""


Accident = Callable[[Any], None]


def is_down(_store: Any) -> None:
    raise Down("It does not answer.", hint="Wait.")


def is_broken(_store: Any) -> None:
    raise Garbage("what is this")


def hangs(store: Any) -> None:
    """Until the deadline of the call, which a mirror is never without; a caller's is short."""
    deadline = store._habits.deadline
    assert deadline is not None
    assert deadline <= (SHADOW["deadline_seconds"] if is_of_shadow() else COHORT_SECONDS)
    threading.Event().wait(min(deadline, 0.05))
    raise Down("It did not answer in time.", hint="Wait.")


def is_of_shadow() -> bool:
    return threading.current_thread().name.startswith("shadow")


def refuses(_store: Any) -> None:
    raise SchemalessError("No.", hint="Never.")


@dataclass
class Edge:
    """Notes who calls which store in which order; callers and shadow reads apart."""

    by_callers: list[str] = field(default_factory=list)
    by_shadow: list[str] = field(default_factory=list)
    #: What happens to calls of an authority, or of a mirror.
    accidents: dict[str, Accident] = field(default_factory=dict)
    _inside: threading.local = field(default_factory=threading.local)

    def called(self, store: Any, operation: str) -> None:
        backend = Backend.LEGACY if isinstance(store, PostgresBackend) else Backend.STORE
        role = "authority" if store._standing.is_fenced else "mirror"
        calls = self.by_shadow if is_of_shadow() else self.by_callers
        calls.append(f"{role} {backend.value} {operation}")
        if role in self.accidents:
            self.accidents[role](store)

    def watch(self, monkeypatch: pytest.MonkeyPatch, kind: type[Any], method: str) -> None:
        original, operation = getattr(kind, method), "put_cell" if method == "put_checked" else method

        @wraps(original)
        def noted(store: Any, *arguments: Any, **named: Any) -> Any:
            if getattr(self._inside, "store", False):  # a store may use its own methods
                return original(store, *arguments, **named)
            self._inside.store = True
            try:
                self.called(store, operation)
                return original(store, *arguments, **named)
            finally:
                self._inside.store = False

        monkeypatch.setattr(kind, method, noted)


#: What the mirror, or the authority, does.
ACCIDENTS: dict[str, dict[str, Accident]] = {
    "nothing": {},
    "mirror down": {"mirror": is_down},
    "mirror broken": {"mirror": is_broken},
    "mirror hangs": {"mirror": hangs},
    "mirror refuses": {"mirror": refuses},
    "authority down": {"authority": is_down},
    "authority broken": {"authority": is_broken},
    "authority refuses": {"authority": refuses},
}
RAISED = {"down": Down, "broken": Garbage, "hangs": Down, "refuses": SchemalessError}
OPERATIONS = [
    "put_cell", "put_cells", "append_cell", "get_cell", "get_cell_latest", "get_cells", "get_cells_latest", "get_row",
    "get_history", "query_index", "get_cells_for_shard", "get_cells_for_shards", "scan_rows", "checksum",
    "resolve_ids", "legacy_ids",
]  # fmt: skip


@dataclass(frozen=True)
class Table:
    """A migration, the row that it knows, and what each read answers."""

    moving: Migration
    seen: Seen
    answers: dict[str, Any]


@pytest.fixture(scope="module")
def table(servers: LocalServers, stores: Stores) -> Iterator[Table]:
    with migration(servers, stores, indexes=[BY_TAG], shadow=SHADOW) as moving:
        store = moving.store
        moving.phase(Phase.DUALWRITE)
        legacy_id, key = moving.legacy.trip()
        store.put_cells([Cell(key, "FREE", ref_key, {"tag": str(key)}) for ref_key in (1, 2)])
        written = next(each for each in iter(uuid4, None) if store.shard_of(each) != store.shard_of(key))
        seen = Seen(key, legacy_id, written)
        moving.carry()
        moving.duo.watch.close()
        yield Table(moving, seen, {name: CALLS[name](store, seen) for name in {**READS, **EXACT_READS, **OTHERS}})


@pytest.fixture
def edge(table: Table, monkeypatch: pytest.MonkeyPatch) -> Edge:
    made = Edge()
    for operation in OPERATIONS:
        made.watch(monkeypatch, SchemalessBackend, operation)
        made.watch(monkeypatch, PostgresBackend, operation)
    made.watch(monkeypatch, SchemalessBackend, "put_checked")  # a put whose bytes the facade has
    return made


def expected(phase: Phase, cohort: float, name: str, accident: str) -> tuple[list[str], list[str], str]:
    """Who is called for the caller, who for the shadow read, and whose failure the caller hears of, if any."""
    legacy_phases = (Phase.OFF, Phase.DUALWRITE, Phase.SHADOW)
    ours, theirs = ("postgres", "schemaless") if phase in legacy_phases else ("schemaless", "postgres")
    operation = name.removesuffix(" verified")
    asked = f"{operation}s" if name in ("resolve_id", "legacy_id") else operation
    authority, mirror = f"authority {ours} {asked}", f"mirror {theirs} {asked}"
    whose, _, _what = accident.partition(" ")
    if name in LOG_READS:
        if phase is Phase.OFF:
            return [authority], [], "authority"
        return [f"mirror schemaless {asked}"], [], "mirror"  # read as what it is, at either authority
    if name == "append_cell":  # its place is chosen once, whatever becomes of the call
        put = [] if whose == "authority" else [f"authority {ours} put_cell"]
        return [f"authority {ours} get_cell_latest", *put], [], "authority"
    if phase not in (Phase.SHADOW, Phase.LIVE) or name in WRITES or name in OTHERS:
        return [authority], [], "authority"
    if not cohort or name in EXACT_READS:
        return [authority], [] if whose == "authority" else [mirror], "authority"
    if whose == "mirror":
        return [mirror, authority], [mirror], "authority"
    return [mirror], [authority], ""


@pytest.mark.parametrize("accident", ACCIDENTS)
@pytest.mark.parametrize(
    ("phase", "cohort"),
    [*((phase, 0.0) for phase in Phase), *((phase, 100.0) for phase in (Phase.DUALWRITE, Phase.SHADOW, Phase.LIVE))],
)
def test_who_is_called_and_what_the_caller_gets(
    table: Table, edge: Edge, phase: Phase, cohort: float, accident: str
) -> None:
    moving = table.moving
    moving.phase(phase, cohort)
    for name, call in CALLS.items():
        if name in LOG_READS and accident == "mirror hangs":
            continue  # the caller's own deadline
        calm(moving, edge, cohort)
        edge.accidents = ACCIDENTS[accident]
        by_caller, by_shadow, heard = expected(phase, cohort, name, accident)
        whose, _, what = accident.partition(" ")

        if heard and heard == whose:
            with pytest.raises(RAISED[what]) as raised:
                call(moving.store, table.seen)
            assert type(raised.value) is RAISED[what], name
        else:
            answer = call(moving.store, table.seen)
            assert answer == table.answers.get(name, answer), name
        assert moving.duo.shadow.drain(60)
        assert (name, edge.by_callers, edge.by_shadow) == (name, by_caller, by_shadow)


def calm(moving: Migration, edge: Edge, cohort: float) -> None:
    """No accident, nothing to be carried, all breakers closed, nothing written down."""
    edge.accidents = {}
    if cohort:
        moving.carry()
        catch_up(moving.facade.store)
        moving.duo.watch.look()
    moving.duo.cohorts.after_fork()
    moving.duo.shadow._breakers.clear()
    edge.by_callers.clear()
    edge.by_shadow.clear()
