"""Superseded versions are purged of columns that hold one thing of a row, whatever is configured (I1, I2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa

from schemaless_core import Cell, Datastore
from schemaless_core.control.tables import document
from schemaless_core.errors import InvalidRequest
from schemaless_core.purging.columns import ColumnBook, ColumnKinds
from schemaless_core.purging.purge_jobs import PurgeOrder
from schemaless_core.servers.authority import ShardAuthority
from tests.facades import Migration, migration
from tests.fscks import row_of
from tests.purges import LATER, SHARDS, run, versions
from tests.stores import Stores
from tripstore.cli.legacy.schema import LegacySchema
from tripstore.cli.schema.layout_change import layout_change
from tripstore.config import load_config
from tripstore.local.servers import LocalServers
from tripstore.migration.cutover.complete import Completion
from tripstore.migration.cutover.evidence import Evidence
from tripstore.migration.layouts.columns import known_kinds
from tripstore.phase import Phase

_PAIRS = [("postgres", "sqlite"), ("postgres18", "mariadb"), ("postgres", "mysql")]


@pytest.fixture
def store(datastore_engine: str, stores: Stores) -> Iterator[Datastore]:
    """One that never had a Postgres."""
    with stores.fresh(datastore_engine, shards=SHARDS) as fresh:
        yield fresh


@pytest.fixture(params=_PAIRS, ids=" ".join)
def live(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    postgres, engine = request.param
    with migration(servers, stores, postgres=postgres, engine=engine, shards=SHARDS) as made:
        schema_apply(made)
        made.phase(Phase.LIVE)
        yield made


def schema_apply(moving: Migration) -> None:
    """What the command does to the legacy store."""
    config = moving.facade.config
    assert config.legacy is not None
    with (
        LegacySchema.opened(config.legacy, config.core.indexes, config.core.shards) as legacy,
        layout_change(config, legacy),
    ):
        legacy.apply()


def forget_book(store: Datastore) -> None:
    """As it is where an earlier version has run `schema apply`."""
    with store.control.begin() as connection:
        assert connection.execute(sa.delete(document).where(document.c.name == "columns")).rowcount == 1


def filled(store: Datastore, row_key: UUID, column: str) -> list[int]:
    store.put_cells([Cell(row_key, column, n, {"result": n}) for n in (1, 2, 3)])
    return left(store, row_key, column)


def left(store: Datastore, row_key: UUID, column: str) -> list[int]:
    return [cell.ref_key for cell in store.get_history(row_key, column)]


def purge(store: Datastore, order: PurgeOrder) -> None:
    run(store, store.purge_jobs.begin(store.purge_jobs.plan(order)))


def of(kinds: ColumnKinds, *columns: str, versioned: tuple[str, ...] = ()) -> PurgeOrder:
    return PurgeOrder((), columns, datetime.now(UTC) + LATER, versioned=versioned, kinds=kinds)


def test_i1_a_column_of_which_no_layout_is_known_is_refused_until_it_is_said_to_hold_versions(store: Datastore) -> None:
    row_key = row_of(store, 0)
    filled(store, row_key, "ATTEMPT")
    with pytest.raises(InvalidRequest, match="No known layout has ATTEMPT") as refused:
        purge(store, of({}, "ATTEMPT"))
    assert "--versioned ATTEMPT" in str(refused.value.hint)
    assert left(store, row_key, "ATTEMPT") == [3, 2, 1]

    purge(store, versions("ATTEMPT"))

    assert left(store, row_key, "ATTEMPT") == [3]


def test_i1_what_was_written_down_of_a_column_stands_before_what_is_said_of_it(store: Datastore) -> None:
    row_key = row_of(store, 0)
    filled(store, row_key, "ATTEMPT")
    book = ColumnBook(store.control)
    book.record({"ATTEMPT": 0, "NOTE": 20})
    book.record({"BASE": None, "NOTE": 20})
    assert book.find() == {"ATTEMPT": 0, "BASE": None, "NOTE": 20}

    for name in ("ATTEMPT", "NOTE"):
        with pytest.raises(InvalidRequest, match=f"{name} holds children"):
            purge(store, of({}, "BASE", name, versioned=(name,)))
    purge(store, of({}, "BASE"))

    assert left(store, row_key, "ATTEMPT") == [3, 2, 1]


def without_legacy(live: Migration) -> Mapping[str, Any]:
    """The configuration after the migration."""
    return {key: value for key, value in live.document.items() if key in ("datastore", "shards", "control", "clusters")}


def completed(live: Migration, folder: Path) -> None:
    control, legacy = live.duo.ports.control, live.facade.config.legacy
    assert legacy is not None
    evidence, file = cast(Evidence, {}), folder / "evidence.json"
    planned = control.authority()
    facade = live.facade
    ending = Completion(
        legacy, facade.store, facade.flags, "a test", lambda: evidence, file, planned, control.authority
    )
    assert len(list(ending.perform())) == 6


def with_facts(live: Migration) -> UUID:
    row_key = uuid4()
    live.store.put_cell(row_key, "BASE", 1, {"status": "requested"})
    live.store.put_cell(row_key, "BASE", 2, {"status": "done"})
    for n in (1, 2, 3):
        live.store.put_cell(row_key, "STATUS", n, {"result": f"{n}"})
    live.carry()
    return row_key


@pytest.mark.parametrize("source", ["servers", "schema apply", "completion", "configuration"])
def test_i1_facts_stay_also_once_legacy_is_out_of_the_configuration(
    live: Migration, tmp_path: Path, source: str
) -> None:
    """Each source by itself: servers since the switch, the book since one of two commands, and Postgres."""
    row_key = with_facts(live)
    if source != "schema apply":
        forget_book(live.facade.store)
    if source == "completion":
        completed(live, tmp_path)
    given = live.document if source == "configuration" else without_legacy(live)
    with Datastore.open(without_legacy(live)) as store, ExitStack() as stack:
        if source != "servers":
            stack.enter_context(patch.object(ShardAuthority, "ever_said", lambda _authority: []))
        kinds = known_kinds(load_config(given), store)

        with pytest.raises(InvalidRequest, match="STATUS holds children"):
            purge(store, of(kinds, "STATUS", versioned=("STATUS",)))
        purge(store, of(kinds, "BASE"))

        assert left(store, row_key, "STATUS") == [3, 2, 1]
        assert left(store, row_key, "BASE") == [2]


def test_control_by_the_configuration_alone_facts_go(live: Migration) -> None:
    row_key = with_facts(live)
    forget_book(live.facade.store)
    with Datastore.open(without_legacy(live)) as store:
        purge(store, versions("STATUS"))

        assert left(store, row_key, "STATUS") == [3]
