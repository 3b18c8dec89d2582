"""What transactional triggers put with their offset keeps to the layout, and is remembered, as what the facade puts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from schemaless_core import Cell, CellStore, InvalidRequest
from schemaless_core.errors import SchemalessError
from schemaless_core.triggers.registry import Trigger, trigger
from tests.chaos.actors import wait_until
from tests.crew import quick
from tests.facades import Migration, migration
from tests.integration.trigger_serving import serving
from tests.legacy_backends import deleting_layout, status
from tests.mirrors import different, reversing, rows_of, wait_until_mirrored_back
from tests.stores import Stores
from tripstore.backends.postgres.errors import LegacyRefused, Unrepresentable
from tripstore.backends.postgres.layout.layout import LEGACY_ID, Layout
from tripstore.cli.options import Settings
from tripstore.cli.worker.duty import Opened, opened
from tripstore.local.servers import LocalServers
from tripstore.migration.mirror.mirror import Mirror
from tripstore.phase import Phase

ROW = 1 << 20

Work = Callable[[CellStore, UUID], object]

#: What the function does for a row, and what came of it.
WORK: dict[UUID, Work] = {}
DONE: dict[UUID, list[object]] = {}


@trigger(column="ASKED", start="beginning", transactional=True)
def working(row_key: UUID, store: CellStore) -> None:
    try:
        answer = WORK[row_key](store, row_key)
    except SchemalessError as error:
        answer = error
    DONE.setdefault(row_key, []).append(answer)


app: list[Trigger] = [working]


@contextmanager
def live(servers: LocalServers, stores: Stores, folder: Path, wanted: Layout | None = None) -> Iterator[Served]:
    """Schemaless is the authority, and serves what is in this module."""
    mirror = {"cohort_seconds": 20.0, "max_lag_seconds": 20.0}
    with migration(servers, stores, wanted=wanted, triggers=quick(retry_seconds=60.0), mirror=mirror) as made:
        made.phase(Phase.SHADOW)
        made.phase(Phase.LIVE, 100.0)
        file = folder / "tripstore.yaml"
        file.write_text(json.dumps(made.document))
        with opened(Settings(file)) as ours, serving(ours, __name__):
            yield Served(made, ours)


class Served:
    """A migration, and the stores that functions are served with."""

    def __init__(self, moving: Migration, ours: Opened) -> None:
        self.moving = moving
        self.ours = ours

    def trip(self) -> UUID:
        row_key = uuid4()
        self.moving.store.put_cell(row_key, "BASE", 1, status("a"))
        return row_key

    def done(self, work: Work, row_key: UUID | None = None) -> tuple[UUID, object]:
        """Have the function do something for a row; what came of it."""
        key = row_key or self.trip()
        WORK[key] = work
        self.moving.store.append_cell(key, "ASKED", "now")
        wait_until("it was called", lambda: key in DONE)
        return key, DONE.pop(key)[0]


@pytest.fixture
def served(servers: LocalServers, stores: Stores, tmp_path: Path) -> Iterator[Served]:
    with live(servers, stores, tmp_path) as made:
        yield made


def test_what_postgres_cannot_represent_is_refused_as_it_is_staged(served: Served) -> None:
    refused: list[tuple[Work, type[Exception]]] = [
        (lambda store, key: store.put_cell(key, "BASE", 2, {"status": 5}), Unrepresentable),
        (lambda store, key: store.append_cell(key, "BASE", "a text"), Unrepresentable),
        (lambda store, key: store.put_cell(key, LEGACY_ID, 0, {"id": 1 << 40}), Unrepresentable),
        (
            lambda store, key: [
                store.append_cell(key, "STATUS", {"result": "a"}),
                store.put_cell(key, "STATUS", 2, None),
            ],
            Unrepresentable,
        ),
        (
            lambda store, key: [store.append_cell(key, "NOTES", {"text": "a"}), store.put_cell(key, "BASE", 2, None)],
            LegacyRefused,
        ),
    ]
    for work, error in refused:
        _key, answer = served.done(work)
        assert isinstance(answer, error), answer
    mirrored_back(served)


def test_the_layout_is_asked_about_what_is_staged_already(served: Served) -> None:
    def delete(store: CellStore, key: UUID) -> object:
        note = store.append_cell(key, "NOTES", {"text": "a"}).ref_key
        store.put_cell(key, "NOTES", note + 1, None)
        return store.put_cell(key, "BASE", 2, None).status

    key, answer = served.done(delete)
    assert answer == "CREATED"
    mirrored_back(served)
    assert rows_of(served.moving, key) == []


def test_what_is_appended_to_child_rows_is_a_new_row(served: Served) -> None:
    key, answer = served.done(
        lambda store, key: [store.append_cell(key, "NOTES", {"text": text}).ref_key for text in "ab"]
    )
    assert answer == [ROW, 2 * ROW]
    mirrored_back(served)
    assert rows_of(served.moving, key, "notes") == [("a", 1), ("b", 2)]


def test_what_was_put_is_remembered_until_the_mirror_has_it(served: Served) -> None:
    assert served.ours.facade is not None
    duo = served.ours.facade.duo
    assert duo is not None
    wait_until("the relay asks for the lag", lambda: duo.lag._is_watched)
    key, answer = served.done(lambda store, key: store.append_cell(key, "FREE", 1).ref_key)

    assert answer == 1
    epoch = duo.ports.control.authority().epoch
    wait_until("it is remembered", lambda: key in duo.lag.pending(epoch).rows)
    assert not duo.lag.allows((key,), epoch)


def test_a_deletion_that_takes_others_along_cannot_wait_for_the_offset(
    servers: LocalServers, stores: Stores, tmp_path: Path
) -> None:
    with live(servers, stores, tmp_path, deleting_layout()) as served:
        key, answer = served.done(lambda store, key: store.put_cell(key, "BASE", 2, None))
        assert isinstance(answer, InvalidRequest)
        assert "takes rows of other columns" in answer.message
        cell = served.moving.store.get_cell_latest(key, "BASE")
        assert cell == Cell(key, "BASE", 1, status("a"))


def mirrored_back(served: Served) -> None:
    """Postgres has all of it, and nothing closes the way back."""
    with reversing(served.moving):
        wait_until_mirrored_back(served.moving)
    assert Mirror(served.moving.facade).parked(is_reverse=True).listed(1) == []
    assert different(served.moving) == []
