"""Processes of the facade: those that fork, those that start while something is down, and what they learn of others."""

from __future__ import annotations

import gc
import socket
import statistics
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import uuid4

import pytest

from schemaless_core import CellKey, Json
from schemaless_core.errors import ControlUnavailable, Unavailable
from tests.chaos.actors import wait_until
from tests.facades import Migration, migration
from tests.indexing import catch_up
from tests.integration.test_forks import forked
from tests.stores import Stores
from tripstore.backends.postgres.errors import Unrepresentable
from tripstore.engines.validation.verdicts import Outcome
from tripstore.facade.facade import Duo
from tripstore.facade.flags import Flags
from tripstore.facade.known import Known
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase
from tripstore.ports.control import MAX_PAUSE_SECONDS
from tripstore.store import TripStore
from tripstore.wiring import connect

#: What is down is not waited for long.
HASTY = {"put_seconds": 2.0, "read_seconds": 2.0, "connect_seconds": 0.5, "pool_seconds": 2.0, "scan_seconds": 5.0}
SHADOW = {"share": 1.0, "per_second": 86_000.0, "deadline_seconds": 20.0}
BY_TAG: Json = {
    "table": "by_tag",
    "column_defs": [{"column_key": "FREE", "fields": [{"field": "tag", "type": "string"}]}],
}


@pytest.fixture
def moving(servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with migration(servers, stores, indexes=[BY_TAG], shadow=SHADOW) as made:
        yield made


def duo_of(store: TripStore) -> Duo:
    duo = store.facade.duo
    assert duo is not None
    return duo


@contextmanager
def refusing_address(scheme: str) -> Iterator[str]:
    """An address that refuses every connection, kept from other processes."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"{scheme}://user:pw@127.0.0.1:{taken.getsockname()[1]}"


def use_everything(store: TripStore) -> None:
    """Writes, and every kind of read, answer as they should."""
    key, tag = uuid4(), str(uuid4())
    assert store.put_cell(key, "FREE", 1, {"tag": tag}).status == "CREATED"
    assert store.append_cell(key, "FREE", {"tag": tag, "n": 2}).ref_key == 2
    assert store.put_cell(key, "BASE", 1, {"status": "put"}).status == "CREATED"
    latest = store.get_cell_latest(key, "FREE")
    assert latest is not None
    assert latest.body == {"tag": tag, "n": 2}
    assert store.get_cells([CellKey(key, "FREE", 1)])[0] is not None
    assert {"BASE", "FREE"} <= set(store.get_row(key))
    assert len(store.get_history(key, "FREE")) == 2
    assert key in [row.row_key for row in store.scan_rows(store.shard_of(key)).rows]
    wait_until("the entry is there", lambda: bool(store.query_index("by_tag", tag).entries))


# --------------------------------------------------------------------------------------------------------- forks


@pytest.mark.parametrize("phase", [Phase.SHADOW, Phase.LIVE])
def test_a_fork_calls_watches_and_compares_on_its_own(moving: Migration, phase: Phase) -> None:
    moving.phase(phase, 100.0)
    store, key = moving.store, uuid4()
    store.put_cell(key, "FREE", 1, {"tag": "parent"})
    moving.carry()
    catch_up(moving.facade.store)
    store.get_cell(key, "FREE", 1)
    assert moving.duo.shadow.drain(20)
    assert moving.duo.tally.total(Outcome.EQUAL) == 1

    def child() -> None:
        tally = moving.duo.tally
        assert tally.total() == 0
        for _ in range(2):
            assert store.get_cell(key, "FREE", 1) is not None
        assert moving.duo.shadow.drain(20)
        assert tally.total(Outcome.EQUAL) == 2, tally.counts()
        use_everything(store)
        moving.facade.flags.change(lambda flags: flags.with_cohorts(phase.authority, {"get_row": 7.0}), "test.child")
        sight = moving.duo.known
        wait_until("the child's own thread saw it", lambda: sight.flags.cohorts(phase.authority).get("get_row") == 7.0)
        store.close()

    assert forked(child, 60) == 0
    # What a child does to its part, the parent's goes on.
    wait_until("the parent saw it", lambda: moving.duo.known.flags.cohorts(phase.authority).get("get_row") == 7.0)
    use_everything(store)


def test_a_fork_of_one_that_never_called_begins_with_its_first_call(moving: Migration) -> None:
    moving.phase(Phase.DUALWRITE)
    with connect(moving.document) as store:
        assert forked(lambda: use_everything(store), 60) == 0


# ------------------------------------------------------------------------------------------- something is down


def started(document: Mapping[str, Any], **changes: Any) -> TripStore:
    """As a process that starts now."""
    return connect({**document, "deadlines": HASTY, **changes})


@pytest.mark.parametrize("phase", Phase)
def test_a_process_starts_and_works_without_the_control_database(moving: Migration, phase: Phase) -> None:
    moving.phase(phase)
    with refusing_address("mysql") as control, started(moving.document, control=control) as store:
        use_everything(store)

        if phase.authority is Phase.OFF.authority:
            # Whose log it is, only the flags say: a position of another log would be worse than none.
            with pytest.raises(ControlUnavailable):
                store.get_cells_for_shard(0, 0, 1)
        else:
            assert store.get_cells_for_shard(0, 0, 1).head >= 0


@pytest.mark.parametrize("phase", [Phase.LIVE, Phase.RAMPDOWN, Phase.COMPLETE])
def test_i10_a_process_that_was_told_no_flags_asks_only_the_authority(moving: Migration, phase: Phase) -> None:
    """What Postgres could not hold is neither taken nor called wrong: which of the two it is, the phase would say."""
    moving.phase(phase, 100.0)
    key = uuid4()
    beyond: Json = {"status": 7}
    with refusing_address("mysql") as control, started(moving.document, control=control) as store:
        duo = duo_of(store)
        assert store.put_cell(key, "BASE", 1, {"status": "put"}).status == "CREATED"
        assert store.get_cell(key, "BASE", 1) is not None
        with pytest.raises(Unavailable, match="status"):
            store.put_cell(key, "BASE", 2, beyond)
        assert not duo.known.has_flags
        assert duo.shadow.drain(20)
        assert duo.tally.total() == 0

    with started(moving.document) as store:
        if phase is Phase.COMPLETE:
            assert store.put_cell(key, "BASE", 2, beyond).status == "CREATED"
        else:
            with pytest.raises(Unrepresentable):
                store.put_cell(key, "BASE", 2, beyond)


def test_a_caller_waits_for_a_hand_over_no_longer_than_his_own_deadline(moving: Migration) -> None:
    """No process finishes this one; a caller without a deadline has its answer once it is undone."""
    moving.phase(Phase.LIVE)
    key, ports = uuid4(), moving.duo.ports
    moving.store.put_cell(key, "FREE", 1, "body")
    open_row = ports.control.authority()
    closing = open_row.closing("a way back that stays half-way")
    assert ports.control.close(open_row, closing)
    for server in ports.store.servers:
        assert ports.store.close(server, closing.epoch)

    begun = time.monotonic()
    with pytest.raises(Unavailable, match="authority does not open"):
        moving.store.using(deadline=0.2).get_cell(key, "FREE", 1)
    seconds = time.monotonic() - begun
    found = moving.store.get_cell(key, "FREE", 1)

    assert 0.2 <= seconds < MAX_PAUSE_SECONDS / 2
    assert found is not None


def test_nothing_is_left_of_a_store_that_was_closed(moving: Migration) -> None:
    """A service may connect as often as it wants to."""
    with connect(moving.document) as store:
        use_everything(store)
        left = weakref.ref(duo_of(store).legacy.database)
    del store
    gc.collect()
    assert left() is None


@pytest.mark.parametrize("phase", [Phase.OFF, Phase.DUALWRITE, Phase.SHADOW])
def test_a_process_starts_and_works_without_schemaless(moving: Migration, phase: Phase) -> None:
    """The control database is there, and was told of cohorts and shadow reads (I10)."""
    moving.phase(phase, 100.0)
    control = moving.document["clusters"]["a"]["primary"]
    with refusing_address("mysql") as a, refusing_address("mysql") as b:
        clusters = {"a": {"primary": a}, "b": {"primary": b}}
        with started(moving.document, clusters=clusters, control=control) as store:
            use_everything(store)
            assert duo_of(store).known.flags.legacy_phase is phase
            use_everything(store)


@pytest.mark.parametrize("phase", [Phase.OFF, Phase.DUALWRITE, Phase.SHADOW])
def test_a_process_starts_and_works_without_schemaless_and_control(moving: Migration, phase: Phase) -> None:
    moving.phase(phase, 100.0)
    with (
        refusing_address("mysql") as a,
        refusing_address("mysql") as b,
        started(moving.document, clusters={"a": {"primary": a}, "b": {"primary": b}}) as store,
    ):
        use_everything(store)


def test_i10_the_first_call_of_a_process_does_not_wait_for_a_control_database_that_says_nothing(
    moving: Migration,
) -> None:
    moving.phase(Phase.SHADOW)
    patient = {**HASTY, "connect_seconds": 3.0}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent_url = f"mysql://user:pw@127.0.0.1:{silent.getsockname()[1]}"
        with started(moving.document, control=silent_url, deadlines=patient) as store:
            begun = time.monotonic()
            assert store.put_cell(uuid4(), "FREE", 1, {"n": 1}).status == "CREATED"
            seconds = time.monotonic() - begun
            assert not duo_of(store).known.has_flags
    assert seconds < patient["connect_seconds"] / 2


@pytest.mark.parametrize("phase", [Phase.LIVE, Phase.RAMPDOWN, Phase.COMPLETE])
def test_a_process_starts_and_works_without_postgres_once_schemaless_is_the_authority(
    moving: Migration, phase: Phase
) -> None:
    moving.phase(phase, 100.0)
    with refusing_address("postgresql") as postgres:
        legacy = {**moving.document["legacy"], "postgres": f"{postgres}/company", "connect_seconds": 0.5}
        with started(moving.document, legacy=legacy) as store:
            use_everything(store)


def test_a_process_that_starts_without_the_authority_hears_so(moving: Migration) -> None:
    """Schemaless is there, and says that it is not open (I9)."""
    moving.phase(Phase.SHADOW)
    with refusing_address("postgresql") as postgres:
        legacy = {**moving.document["legacy"], "postgres": f"{postgres}/company", "connect_seconds": 0.5}
        with started(moving.document, legacy=legacy) as store, pytest.raises(Unavailable, match="Postgres"):
            store.get_row(uuid4())


# ------------------------------------------------------------------------------------------ what others changed


def test_what_another_process_changed_is_seen_within_a_second(moving: Migration) -> None:
    seconds = []
    with connect(moving.document) as store:
        store.get_row(uuid4())
        known = duo_of(store).known
        for phase in (Phase.DUALWRITE, Phase.SHADOW, Phase.OFF, Phase.DUALWRITE, Phase.SHADOW):
            moving.facade.flags.change(partial(Flags.with_phase, phase=phase), "test.phase")
            seconds.append(seconds_until(known, phase))
        moving.switch()
        seconds.append(seconds_until(known, Phase.LIVE))
    assert statistics.median(seconds) < 1.0, seconds


def test_a_change_is_seen_within_a_second_while_postgres_hangs(moving: Migration) -> None:
    """Just then an operator wants to change the flags."""
    seconds = []
    moving.phase(Phase.LIVE)
    with connect(moving.document) as store:
        store.get_row(uuid4())
        known = duo_of(store).known
        moving.legacy.server.pause()
        try:
            for phase in (Phase.RAMPDOWN, Phase.LIVE, Phase.RAMPDOWN):
                moving.facade.flags.change(partial(Flags.with_phase, phase=phase), "test.phase")
                seconds.append(seconds_until(known, phase))
        finally:
            moving.legacy.server.resume()
    assert statistics.median(seconds) < 1.0, seconds


def seconds_until(known: Known, phase: Phase) -> float:
    begun = time.monotonic()
    wait_until(f"{phase} is seen", lambda: known.sight is not None and known.sight.phase is phase)
    return time.monotonic() - begun
