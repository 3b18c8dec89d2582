"""Claims and calls beside an offset: counted under the newest fence, and left alone by earlier versions."""

from __future__ import annotations

from uuid import uuid4

import pytest

from schemaless_core import Cell, Datastore, SchemaMissing
from schemaless_core.deadline import Deadline
from schemaless_core.engine.groups import CallNote, GroupStep, GroupTables
from tests.crew import Notebook, noting, quick, wait_until_caught_up, working
from tests.damage import execute
from tests.stores import Stores

GROUP = "noted"
NOTHING = CallNote(0, 0, 0)


@pytest.fixture
def store(datastore_engine: str, stores: Stores) -> Datastore:
    made = stores.fresh(datastore_engine, shards=2, triggers=quick())
    made.triggers.register(noting(Notebook(), name=GROUP))
    return made


def tables(store: Datastore) -> GroupTables:
    return store.clusters[store._places.get(0, Deadline(5)).cluster].primary.node.groups


def claims(store: Datastore, fence: int) -> tuple[int, CallNote]:
    store.triggers.offsets.claim(GROUP, {0: fence})
    return tables(store).note_claims(GROUP, [0], Deadline(5))[0]


def test_claims_are_counted_until_the_offset_moves(store: Datastore) -> None:
    assert [claims(store, fence)[0] for fence in (10, 11, 12)] == [1, 2, 3]
    store.triggers.offsets.advance(GROUP, {0: GroupStep(12, 1, 5, 1)})
    assert [claims(store, fence)[0] for fence in (13, 14)] == [1, 2]


def test_a_call_is_noted_under_the_newest_fence_only_and_outlives_claims(store: Datastore) -> None:
    assert claims(store, 10) == (1, NOTHING)
    tables(store).note_call(GROUP, 0, 10, CallNote(1, 7, 2), Deadline(5))
    assert claims(store, 11) == (2, CallNote(1, 7, 2))
    tables(store).note_call(GROUP, 0, 10, CallNote(1, 8, 1), Deadline(5))
    assert claims(store, 12) == (3, CallNote(1, 7, 2)), "the former holder notes nothing"


def test_a_group_that_is_removed_leaves_no_calls_behind(store: Datastore) -> None:
    claims(store, 10)
    tables(store).note_call(GROUP, 0, 10, CallNote(1, 7, 2), Deadline(5))
    store.triggers.remove(GROUP)
    store.triggers.register(noting(Notebook(), name=GROUP))
    assert claims(store, 10) == (1, NOTHING)


def test_a_server_of_an_earlier_version_is_served_and_lacks_the_table_by_name(store: Datastore) -> None:
    """Old tables and a new process, until `schema apply`."""
    execute(store, 0, "DROP TABLE {call}")
    assert [missing for missing in store.schema.plan().missing_tables.values() if missing] == [["trigger_call"]]

    store.put_cells([Cell(uuid4(), "BASE", 1, n) for n in range(5)])
    notebook = Notebook()
    with working(store, [noting(notebook, name=GROUP)]):
        wait_until_caught_up(store, GROUP)
    assert len(notebook.cells) == 5
    store.triggers.remove(GROUP)

    store.create_schema()
    assert store.schema.plan().is_done


def test_i7_a_reset_that_a_server_did_not_make_is_raised(store: Datastore) -> None:
    """The caller would take the group to be where it is not."""
    execute(store, 0, "DROP TABLE {offset}")
    with pytest.raises(SchemaMissing):
        store.triggers.offsets.reset(GROUP, {0: (1, 0)})
