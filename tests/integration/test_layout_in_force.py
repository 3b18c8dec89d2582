"""Another layout is put in force while processes of the old one run, or sleep: they write nothing more (I2, I8, I9).

The company's attempts were facts, and become rows that change: a cell's ref key is then number and version in one. Who
goes by the old layout takes all of it for the number.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

import tripstore
from schemaless_core import Cell, CellStore, PutResult
from schemaless_core.engine.groups import OffsetSeen
from schemaless_core.failpoints import FailpointReached, use_folder
from schemaless_core.triggers.registry import trigger
from tests.chaos.actors import wait_until
from tests.crew import quick
from tests.facades import Migration, migration
from tests.legacy import attempts, base, layout, notes
from tests.serving import serve, told
from tests.stores import Stores
from tripstore.backends.postgres.cells import fence
from tripstore.backends.postgres.errors import InvalidLayout, LegacyRefused
from tripstore.backends.postgres.handover.sessions import stale_sessions
from tripstore.backends.postgres.layout.layout import Field, FieldType, Layout, MappedColumn, RefKeySource
from tripstore.backends.postgres.wire.connections import rows
from tripstore.cli.legacy.schema import LegacySchema
from tripstore.cli.schema.layout_change import layout_change
from tripstore.config import TripstoreConfig, load_config
from tripstore.errors import StaleLayout
from tripstore.facade.in_force import with_layout_in_force
from tripstore.facade.staged import Staged
from tripstore.handover import backfill, relay, relayout, reverse, settle, switch
from tripstore.handover.authority import Authority, Backend
from tripstore.handover.ports import REFUSED, Chunk
from tripstore.handover.reverse import Hands
from tripstore.handover.steps import run
from tripstore.local.servers import LocalServers
from tripstore.migration.layouts import change
from tripstore.migration.layouts.existing import Existing
from tripstore.migration.mirror.look import Runs
from tripstore.phase import Phase
from tripstore.ports.store import SchemalessPort
from tripstore.store import TripStore
from tripstore.wiring import build

SERVERS = [("postgres", "sqlite"), ("postgres18", "sqlite"), ("postgres", "mariadb"), ("postgres18", "mysql")]


def changing_attempts(name: str = "STATUS") -> MappedColumn:
    return replace(attempts(), name=name, ref_key=RefKeySource(column="attempt_no", version="attempt_version"))


FACTS = layout()
CHANGING = layout(base(), changing_attempts(), notes())
RENAMED = layout(base(), changing_attempts("STATUSES"), notes())
WITH_MEMO = layout(
    replace(base(), fields=(*base().fields, Field("memo", "memo", FieldType.STRING))), attempts(), notes()
)


def config_of(moving: Migration, wanted: Layout) -> TripstoreConfig:
    core = load_config(moving.document)
    document = {**wanted.to_document(), "datastore": core.core.datastore}
    return load_config({**moving.document, "legacy": {**moving.document["legacy"], "layout": document}})


def schema_apply(moving: Migration, wanted: Layout) -> None:
    """What `tripstore schema apply` does to the legacy store, with this layout in the file."""
    config = config_of(moving, wanted)
    assert config.legacy is not None
    with (
        LegacySchema.opened(config.legacy, config.core.indexes, config.core.shards) as legacy,
        layout_change(config, legacy),
    ):
        legacy.refuse_unfit()
        legacy.apply()


@contextmanager
def process(moving: Migration, wanted: Layout) -> Iterator[Migration]:
    """A process that goes by a layout, and loads no other."""
    with TripStore(build(config_of(moving, wanted))) as store:
        yield replace(moving, store=store)


@pytest.fixture(params=SERVERS[:2], ids="-".join)
def moving(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    postgres, engine = request.param
    with migration(servers, stores, postgres=postgres, engine=engine) as made:
        schema_apply(made, FACTS)
        yield made


@pytest.fixture(params=SERVERS, ids="-".join)
def anywhere(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    postgres, engine = request.param
    with migration(servers, stores, postgres=postgres, engine=engine) as made:
        schema_apply(made, FACTS)
        yield made


def row_of(moving: Migration) -> Authority:
    return moving.duo.ports.control.authority()


def put(store: CellStore) -> PutResult:
    return store.put_cell(uuid4(), "FREE", 1, "x")


def numbers(moving: Migration, row_key: UUID) -> list[int]:
    """Of the company's attempts."""
    found = moving.legacy.sql("SELECT attempt_no FROM attempts WHERE trip_uuid = %s ORDER BY 1", str(row_key))
    return [number for (number,) in found]


def on_live(moving: Migration) -> UUID:
    """A trip, and Schemaless as the authority."""
    _, row_key = moving.legacy.trip()
    moving.phase(Phase.DUALWRITE)
    moving.carry()
    moving.phase(Phase.LIVE)
    return row_key


def put_attempt(moving: Migration, row_key: UUID, number: int) -> None:
    moving.store.put_cell(row_key, "STATUS", number << 20, {"result": f"attempt {number}"})


# ------------------------------------------------------------------------------------ the worker that was not restarted


def test_i9_a_worker_of_the_old_layout_writes_nothing_into_postgres(anywhere: Migration) -> None:
    with process(anywhere, FACTS) as old, process(anywhere, CHANGING) as new:
        old.duo.watch.look()
        schema_apply(anywhere, CHANGING)
        row_key = on_live(new)
        put_attempt(new, row_key, 950)

        with pytest.raises(StaleLayout):
            serve(old.facade.store, old.reverse_mirror)

        assert numbers(anywhere, row_key) == []
        assert new.facade.store.triggers.status("mirror:reverse")[0].parked == 0
        serve(new.facade.store, new.reverse_mirror)
        assert numbers(anywhere, row_key) == [950]
        new.reverse()
        assert new.store.get_cell_latest(row_key, "STATUS") == Cell(
            row_key, "STATUS", 950 << 20, {"result": "attempt 950"}
        )


def test_control_a_worker_that_no_shard_refuses_writes_garbage(
    moving: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Authority, "check_layout", lambda row, known: None)
    with process(moving, FACTS) as old, process(moving, CHANGING) as new:
        old.duo.watch.look()
        schema_apply(moving, CHANGING)
        row_key = on_live(new)
        put_attempt(new, row_key, 950)

        serve(old.facade.store, old.reverse_mirror)

        assert numbers(moving, row_key) == [950 << 20]


# ------------------------------------------------------------------------------------ a function that was at work


@contextmanager
def stages_by_the_old_layout(
    servers: LocalServers, stores: Stores, postgres: str, engine: str
) -> Iterator[tuple[Migration, UUID]]:
    """On live a transactional trigger puts fact 951, and is at work still while attempts become rows that change."""
    is_staged, go_on = threading.Event(), threading.Event()
    calls: list[UUID] = []

    @trigger(column="ASKED", start="beginning", transactional=True, name="billing")
    def bill(row_key: UUID, store: CellStore) -> None:
        calls.append(row_key)
        store.put_cell(row_key, "STATUS", 951, {"result": "billed"})
        is_staged.set()
        assert go_on.wait(60)

    with migration(servers, stores, postgres=postgres, engine=engine, triggers=quick()) as moving:
        schema_apply(moving, FACTS)
        with process(moving, FACTS) as old:
            row_key = on_live(old)
            worker = old.facade.store.triggers.worker(
                [bill], name="old", store=old.store.at_authority(), rules=old.duo.staged
            )
            running = threading.Thread(target=worker.run)
            running.start()
            try:
                old.store.append_cell(row_key, "ASKED", "now")
                assert is_staged.wait(60)
                schema_apply(moving, CHANGING)
                go_on.set()
                (shard,) = {old.store.shard_of(row_key)}
                offsets = old.facade.store.triggers.offsets
                wait_until("it was tried", lambda: len(calls) > 1 or _is_past(told(offsets.find("billing"))[shard]))
            finally:
                go_on.set()
                worker.stop()
                running.join(60)
        with process(moving, CHANGING) as new:
            yield new, row_key


def _is_past(seen: OffsetSeen) -> bool:
    return seen.offset is not None and seen.offset.added_id >= seen.head


@pytest.mark.parametrize(("postgres", "engine"), SERVERS)
def test_i9_what_a_transactional_trigger_staged_by_the_old_layout_is_refused(
    servers: LocalServers, stores: Stores, postgres: str, engine: str
) -> None:
    with stages_by_the_old_layout(servers, stores, postgres, engine) as (new, row_key):
        assert new.store.get_history(row_key, "STATUS") == []
        assert new.facade.store.triggers.status("billing")[0].parked == 0


def test_control_what_is_fenced_by_no_epoch_is_version_951_of_attempt_0(
    servers: LocalServers, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Staged, "authority_epoch", lambda staged: None)
    with stages_by_the_old_layout(servers, stores, *SERVERS[0]) as (new, row_key):
        (cell,) = new.store.get_history(row_key, "STATUS")
        assert CHANGING.split("STATUS", cell.ref_key) == (0, 951)


# ------------------------------------------------------------------------------------ who was stopped across the change


def asleep_with_cells(moving: Migration, row_key: UUID) -> Any:
    """A reverse mirror that has looked, and has yet to write."""
    mirror = moving.reverse_mirror
    shard = moving.store.shard_of(row_key)
    page = moving.facade.store.get_cells_for_shard(shard, 0, 100)
    cells: Sequence[Cell] = [cell for cell in page.cells if cell.row_key == row_key]
    runs: Runs = {shard: cells}
    hands = Hands(mirror._written, mirror._passed)
    steps = reverse.deliver(moving.duo.ports.control, hands, runs, moving.duo.legacy.layout.digest)
    while next(steps) is not reverse.WRITE:
        pass
    return steps


def test_i9_a_mirror_that_slept_across_the_change_is_refused_by_postgres_itself(anywhere: Migration) -> None:
    with process(anywhere, FACTS) as old:
        row_key = on_live(old)
        old.store.put_cell(row_key, "BASE", 7, {"status": "late"})
        steps = asleep_with_cells(old, row_key)
        schema_apply(anywhere, WITH_MEMO)

        outcomes = run(steps)

        assert "does not take the mirror's writes" in str([outcome.error for outcome in outcomes.values()])
        assert anywhere.legacy.sql("SELECT status FROM trips WHERE trip_uuid = %s", str(row_key)) == [("requested",)]


def test_control_a_mirror_that_presents_no_epoch_writes_after_its_sleep(
    moving: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence.MirrorRole, "enter", lambda self, connection: [connection.call(self._admission)])
    with process(moving, FACTS) as old:
        row_key = on_live(old)
        old.store.put_cell(row_key, "BASE", 7, {"status": "late"})
        steps = asleep_with_cells(old, row_key)
        schema_apply(moving, WITH_MEMO)

        run(steps)

        assert moving.legacy.sql("SELECT status FROM trips WHERE trip_uuid = %s", str(row_key)) == [("late",)]


def test_i9_what_a_relay_had_claimed_before_the_change_no_shard_takes(anywhere: Migration) -> None:
    with process(anywhere, FACTS) as old, process(anywhere, WITH_MEMO) as new:
        old.phase(Phase.DUALWRITE)
        _, row_key = anywhere.legacy.trip()
        steps = relay.deliver(old.duo.ports)
        while next(steps) is not relay.SEND:
            pass
        schema_apply(anywhere, WITH_MEMO)

        assert run(steps).delivered == 0
        with pytest.raises(StaleLayout):
            run(relay.deliver(old.duo.ports))
        assert new.facade.store.get_cell_latest(row_key, "BASE") is None
        new.carry()
        assert new.facade.store.get_cell_latest(row_key, "BASE") is not None


def test_control_a_claim_that_does_not_look_at_the_layout_is_carried(
    moving: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    with process(moving, FACTS) as old:
        old.phase(Phase.DUALWRITE)
        moving.legacy.trip()
        schema_apply(moving, WITH_MEMO)
        monkeypatch.setattr(old.duo.ports.legacy._queue, "_digest", digest_of(moving))  # type: ignore[attr-defined]

        assert run(relay.deliver(old.duo.ports)).delivered


def digest_of(moving: Migration) -> str:
    """Of the layout with memos."""
    found = config_of(moving, WITH_MEMO).legacy
    assert found is not None
    return found.layout.digest


def test_i9_a_chunk_of_the_past_is_neither_read_nor_put_by_the_old_layout(moving: Migration) -> None:
    with process(moving, FACTS) as old:
        old.phase(Phase.DUALWRITE)
        _, row_key = moving.legacy.trip()
        steps = backfill.copy_chunk(old.duo.ports, Chunk())
        while next(steps) is not backfill.WRITE:
            pass
        schema_apply(moving, WITH_MEMO)

        assert not run(steps).is_whole
        with pytest.raises(StaleLayout):
            old.duo.ports.legacy.read_chunk(Chunk())
        assert old.facade.store.get_cell_latest(row_key, "BASE") is None


@pytest.mark.parametrize("phase", [Phase.DUALWRITE, Phase.LIVE])
def test_i9_owners_of_the_old_layout_are_refused_and_hand_nothing_over(moving: Migration, phase: Phase) -> None:
    with process(moving, FACTS) as old:
        old.phase(phase)
        before = row_of(old)
        port = old.duo.ports.legacy if phase is Phase.DUALWRITE else old.duo.ports.store
        assert port.call(put, before.epoch) is not REFUSED
        schema_apply(moving, WITH_MEMO)

        assert port.call(put, before.epoch) is REFUSED
        with pytest.raises(StaleLayout):
            put(old.store)
        with pytest.raises(StaleLayout):
            old.store.get_cell_latest(uuid4(), "BASE")
        for procedure in (switch.switch, switch.reverse):
            with pytest.raises(StaleLayout):
                run(procedure(old.duo.ports, "stale"))
        after = row_of(old)
        assert (after.epoch, after.backend, after.is_open) == (before.epoch + 2, before.backend, True)


# ------------------------------------------------------------------------------------------------ processes that go on


@pytest.mark.parametrize("phase", [Phase.DUALWRITE, Phase.LIVE])
def test_a_service_loads_the_layout_in_force_and_hears_nothing_of_the_change(moving: Migration, phase: Phase) -> None:
    moving.phase(phase)
    is_over, failed = threading.Event(), list[BaseException]()

    def work(store: TripStore) -> None:
        try:
            while not is_over.is_set():
                key = uuid4()
                assert store.put_cell(key, "BASE", 1, {"status": "x"}).status == "CREATED"
                assert store.get_cell_latest(key, "BASE") is not None
        except BaseException as error:  # noqa: BLE001  # told below
            failed.append(error)

    with tripstore.connect(moving.document) as store:
        threads = [threading.Thread(target=work, args=(each,)) for each in (store, store.using(deadline=20))]
        for thread in threads:
            thread.start()
        schema_apply(moving, WITH_MEMO)
        key = uuid4()
        assert store.put_cell(key, "BASE", 1, {"status": "x", "memo": "new"}).status == "CREATED"
        is_over.set()
        for thread in threads:
            thread.join()
        legacy = store.facade.config.legacy
        assert legacy is not None
        assert legacy.layout.digest == digest_of(moving)
    assert failed == []


def test_a_process_that_starts_with_a_file_of_yesterday_goes_by_the_layout_in_force(moving: Migration) -> None:
    schema_apply(moving, WITH_MEMO)
    with tripstore.connect(moving.document) as store:
        assert store.put_cell(uuid4(), "BASE", 1, {"status": "x", "memo": "new"}).status == "CREATED"


def test_servers_that_are_open_tell_the_layout_while_postgres_is_silent(anywhere: Migration) -> None:
    anywhere.phase(Phase.LIVE)
    schema_apply(anywhere, WITH_MEMO)
    silent = {**anywhere.document["legacy"], "postgres": "postgresql://app@127.0.0.1:1/nothing"}
    config = load_config({**anywhere.document, "legacy": silent})

    found = with_layout_in_force(config).legacy

    assert found is not None
    assert found.layout.digest == digest_of(anywhere)
    with tripstore.connect({**anywhere.document, "legacy": silent}) as store:
        assert put(store).status == "CREATED"


def test_sessions_say_who_still_goes_by_another_layout(moving: Migration) -> None:
    with process(moving, FACTS) as old:
        row_of(old)
        with moving.legacy.ours() as connection:

            def ask(statement: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
                return rows(connection, statement, values)

            assert stale_sessions(ask) == []
            schema_apply(moving, WITH_MEMO)
            (found,) = stale_sessions(ask)
        assert found.layout == old.duo.legacy.layout.digest


# ----------------------------------------------------------------------------------------------- the change that dies


@pytest.mark.parametrize("phase", [Phase.DUALWRITE, Phase.LIVE])
@pytest.mark.parametrize("step", relayout.STEPS, ids=lambda step: step.name)
def test_a_change_that_dies_anywhere_leaves_one_layout_in_force_and_goes_on_later(
    moving: Migration, phase: Phase, step: Any, tmp_path: Path
) -> None:
    moving.phase(phase)
    before = row_of(moving)
    (tmp_path / step.name).write_text("raise")
    use_folder(tmp_path)
    try:
        schema_apply(moving, WITH_MEMO)
    except FailpointReached:
        pass
    finally:
        use_folder(None)
    with process(moving, FACTS) as old, process(moving, WITH_MEMO) as new:
        row = run(settle.mend(old.duo.ports))
        assert row.is_open
        assert row.backend is before.backend
        is_new = row.layout == digest_of(moving)
        put((new if is_new else old).store)
        with pytest.raises(StaleLayout):
            put((old if is_new else new).store)

        schema_apply(moving, WITH_MEMO)

        assert row_of(new).layout == digest_of(moving)
        put(new.store)


def test_a_server_that_does_not_answer_keeps_the_layout_before_in_force(
    moving: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could take what the old layout sends when it comes back."""
    monkeypatch.setattr(change, "TRIES", 1)
    monkeypatch.setattr(SchemalessPort, "close", lambda port, server, epoch: server != "b")

    with pytest.raises(LegacyRefused, match="b did not acknowledge"):
        schema_apply(moving, WITH_MEMO)

    assert row_of(moving).layout == moving.duo.legacy.layout.digest
    put(moving.store)


# --------------------------------------------------------------------------------- what cells rest on does not change


def test_i2_another_kind_of_ref_key_is_refused_while_there_are_cells_and_a_new_name_is_the_way_out(
    anywhere: Migration,
) -> None:
    id_, row_key = anywhere.legacy.trip()
    insert = "INSERT INTO attempts (trip_id, trip_uuid, attempt_no, result) VALUES (%s, %s, %s, 'x')"
    anywhere.phase(Phase.DUALWRITE)
    anywhere.legacy.sql(insert, id_, str(row_key), 1)
    anywhere.carry()
    before = row_of(anywhere)

    with pytest.raises(InvalidLayout, match=r"columns.STATUS.ref_key: was \{column: attempt_no\} and is .*Schemaless"):
        schema_apply(anywhere, CHANGING)
    assert row_of(anywhere) == before

    schema_apply(anywhere, RENAMED)
    with process(anywhere, RENAMED) as new:
        new.carry()
        run(backfill.copy_chunk(new.duo.ports, Chunk()))
        found = new.facade.store.get_cell_latest(row_key, "STATUSES")
        assert found is not None
        assert (found.ref_key, found.body) == (1 << 20, {"result": "x"})


def test_i2_what_is_queued_or_buried_counts_as_cells(moving: Migration) -> None:
    id_, row_key = moving.legacy.trip()
    insert = "INSERT INTO attempts (trip_id, trip_uuid, attempt_no, result) VALUES (%s, %s, 1, 'x')"
    moving.legacy.sql(insert, id_, str(row_key))

    with pytest.raises(InvalidLayout, match=r"tripstore\.queue"):
        schema_apply(moving, CHANGING)


def test_i2_cells_that_come_while_others_are_looked_for_are_found_behind_the_fence(
    moving: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change, "TRIES", 1)
    row_key = on_live(moving)
    places, calls = Existing.places, list[str]()

    def places_then_a_put(existing: Existing, column: str) -> list[str]:
        found = places(existing, column)
        calls.append(column)
        if len(calls) == 2:  # the second look, right before the fence
            moving.store.put_cell(row_key, "STATUS", 1, {"result": "x"})
        return found

    monkeypatch.setattr(Existing, "places", places_then_a_put)

    with pytest.raises(LegacyRefused, match="cells were written meanwhile"):
        schema_apply(moving, CHANGING)

    assert row_of(moving).layout == moving.duo.legacy.layout.digest


def test_a_column_that_was_left_out_for_a_while_is_held_against_what_it_was(moving: Migration) -> None:
    moving.phase(Phase.DUALWRITE)
    id_, row_key = moving.legacy.trip()
    insert = "INSERT INTO attempts (trip_id, trip_uuid, attempt_no, result) VALUES (%s, %s, 1, 'x')"
    moving.legacy.sql(insert, id_, str(row_key))
    moving.carry()
    schema_apply(moving, layout(base(), notes()))

    with pytest.raises(InvalidLayout, match=r"columns\.STATUS\.ref_key"):
        schema_apply(moving, CHANGING)
    schema_apply(moving, FACTS)
    assert row_of(moving).backend is Backend.LEGACY
