"""Numbers of child rows come from the company's sequences: no number is given twice, at either authority, and back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import psycopg2.errors
import pytest

from schemaless_core.control.audit import AuditLog
from schemaless_core.errors import Unavailable
from tests.discussions import (
    SERIAL,
    TABLES,
    comment_by_sql,
    comments_by_sql,
    discussion,
    number,
    parked,
    post,
    talk_layout,
)
from tests.facades import Migration
from tests.legacy import Legacy
from tests.legacy_databases import FLAVOURS, postgres_server
from tests.stores import Stores
from tripstore.backends.postgres.errors import LegacyRefused, LegacyUnavailable
from tripstore.backends.postgres.numbers import numbers
from tripstore.backends.postgres.numbers.numbers import Numbers
from tripstore.backends.postgres.wire.connections import rows
from tripstore.backends.postgres.wire.database import LegacyDatabase
from tripstore.backends.postgres.wire.translation import LockTimeout
from tripstore.cli.legacy.advice import advised
from tripstore.config import load_config
from tripstore.facade import number_ranges
from tripstore.local.proxy import Proxy
from tripstore.local.servers import LocalServers
from tripstore.migration.cutover.perform import HandoverOrder, perform
from tripstore.migration.cutover.plan import Direction
from tripstore.phase import Phase
from tripstore.ports.legacy import RealLegacyPort
from tripstore.store import TripStore
from tripstore.wiring import build

COMMENT = talk_layout().columns["COMMENT"]


@pytest.fixture(scope="module", params=FLAVOURS)
def talk(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with discussion(servers, stores, postgres=request.param) as made:
        yield made


@pytest.fixture(autouse=True)
def _no_number_waits_for_the_next_test(request: pytest.FixtureRequest) -> Iterator[None]:
    """Some tests leave a row ahead of its sequence, which is what they are about."""
    yield
    if "talk" in request.fixturenames:
        made: Migration = request.getfixturevalue("talk")
        highest = "greatest(last_value, (SELECT max(id) FROM comments))"
        made.legacy.sql(f"SELECT setval('comments_id_seq', {highest}) FROM comments_id_seq")


@contextmanager
def behind_proxy(made: Migration) -> Iterator[tuple[TripStore, Proxy]]:
    """Another process's facade, whose way to Postgres can be cut."""
    head, _, tail = made.legacy.url.rpartition(":")
    port, _, name = tail.partition("/")
    proxy = Proxy(int(port), lambda at: f"{head}:{at}/{name}")
    legacy = {**made.document["legacy"], "postgres": proxy.url, "connect_seconds": 1, "put_seconds": 2}
    store = TripStore(build(load_config({**made.document, "legacy": legacy})))
    try:
        yield store, proxy
    finally:
        store.close()
        proxy.close()


@pytest.mark.parametrize("phase", [Phase.DUALWRITE, Phase.LIVE])
def test_what_is_appended_leaves_the_sequence_ahead(talk: Migration, phase: Phase) -> None:
    """The company's next INSERT met the number that was appended, and failed on its primary key."""
    talk.phase(phase)
    mine, other = post(talk), post(talk)
    appended = [talk.store.append_cell(row, "COMMENT", {"text": "a"}).ref_key for row in (mine, other, mine, mine)]
    votes = [talk.store.append_cell(row, "VOTE", {"points": 1}).ref_key for row in (mine, other)]

    assert len({number(ref_key) for ref_key in appended}) == 4
    assert appended[0] < appended[2] < appended[3]
    assert len(set(votes)) == 2
    talk.carry()
    if phase is Phase.LIVE:
        assert parked(talk) == 0
    talk.phase(Phase.DUALWRITE)
    assert comment_by_sql(talk, mine) > max(map(number, appended))


def test_control_a_number_that_is_counted_keeps_the_company_from_its_next_row(
    servers: LocalServers, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who knows of no sequence takes the parent's next number, which the sequence gives to the next INSERT."""
    with discussion(servers, stores) as made:
        made.phase(Phase.DUALWRITE)
        row_key = post(made)
        last = comment_by_sql(made, row_key)
        monkeypatch.setattr(Numbers, "sequences", lambda *_deadline: {})
        appended = made.store.append_cell(row_key, "COMMENT", {"text": "counted"}).ref_key

        assert number(appended) == last + 1
        with pytest.raises(psycopg2.errors.UniqueViolation):
            comment_by_sql(made, row_key)


def test_a_number_of_another_parents_row_is_never_taken(talk: Migration) -> None:
    """The parent's next number was another parent's: refused at Postgres, accepted and parked on live."""
    talk.phase(Phase.DUALWRITE)
    mine, other = post(talk), post(talk)
    taken = [comment_by_sql(talk, row) for row in (mine, other, other)]
    talk.store.append_cell(mine, "COMMENT", {"text": "at postgres"})
    talk.phase(Phase.LIVE)
    appended = talk.store.append_cell(mine, "COMMENT", {"text": "on live"})

    assert number(appended.ref_key) > max(taken)
    talk.carry()
    assert parked(talk) == 0


@pytest.mark.parametrize("ahead", [500, 5_000_000])
@pytest.mark.parametrize("phase", [Phase.DUALWRITE, Phase.LIVE])
def test_a_number_that_a_caller_chose_moves_the_sequence(
    talk: Migration, phase: Phase, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(number_ranges, "DRAW_SECONDS", 20.0)  # a Postgres on a busy machine is not silent
    talk.phase(Phase.DUALWRITE)
    row_key = post(talk)
    chosen = comment_by_sql(talk, row_key) + ahead
    talk.phase(phase)
    talk.store.put_cell(row_key, "COMMENT", COMMENT.compose(chosen, 0), {"text": "mine"})
    appended = talk.store.append_cell(row_key, "COMMENT", {"text": "next"}).ref_key

    talk.phase(Phase.DUALWRITE)
    assert number(appended) > chosen
    assert comment_by_sql(talk, row_key) > number(appended)


def test_a_sequence_that_a_drawing_transaction_holds_is_moved_when_that_ends(
    talk: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many numbers take their time to be drawn, those of our own range, too, and no sequence is altered meanwhile."""
    monkeypatch.setattr(number_ranges, "DRAW_SECONDS", 20.0)
    talk.phase(Phase.DUALWRITE)
    row_key = post(talk)
    chosen = comment_by_sql(talk, row_key) + 5_000_000
    talk.phase(Phase.LIVE)
    refused: list[LockTimeout] = []
    jump = Numbers._jump

    with closing(talk.legacy.connect()) as drawing:
        rows(drawing, "SELECT nextval('comments_id_seq')")

        def ending_it(*arguments: Any) -> None:
            try:
                jump(*arguments)
            except LockTimeout as held:
                refused.append(held)
                drawing.rollback()
                raise

        monkeypatch.setattr(Numbers, "_jump", ending_it)
        talk.store.put_cell(row_key, "COMMENT", COMMENT.compose(chosen, 0), {"text": "mine"})
        appended = talk.store.append_cell(row_key, "COMMENT", {"text": "next"}).ref_key

    assert len(refused) == 1
    talk.phase(Phase.DUALWRITE)
    assert number(appended) > chosen


def test_a_chosen_number_that_postgres_did_not_hear_of_is_passed_by_the_reverse_mirror(talk: Migration) -> None:
    talk.phase(Phase.DUALWRITE)
    row_key = post(talk)
    chosen = comment_by_sql(talk, row_key) + 700
    talk.phase(Phase.LIVE)
    with behind_proxy(talk) as (store, proxy):
        store.append_cell(row_key, "COMMENT", {"text": "first"})
        proxy.refuse()
        store.put_cell(row_key, "COMMENT", COMMENT.compose(chosen, 0), {"text": "mine"})
    talk.phase(Phase.DUALWRITE)

    assert comment_by_sql(talk, row_key) > chosen


def test_appends_go_on_without_postgres_as_long_as_the_range_lasts(
    talk: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(number_ranges, "COUNT_MIN", 5)
    monkeypatch.setattr(number_ranges, "LAST_SECONDS", 0.0)
    talk.phase(Phase.LIVE)
    row_key = post(talk)
    with behind_proxy(talk) as (store, proxy):
        appended = [store.append_cell(row_key, "COMMENT", {"text": "up"}).ref_key]
        proxy.refuse()
        appended += [store.append_cell(row_key, "COMMENT", {"text": "down"}).ref_key for _ in range(4)]
        with pytest.raises(LegacyUnavailable, match="number"):
            store.append_cell(row_key, "COMMENT", {"text": "no more"})
        store.put_cell(row_key, "COMMENT", appended[-1] + 1, {"text": "changed"})
        proxy.heal()
        monkeypatch.setattr(number_ranges, "SILENT_SECONDS", 0.0)
        appended.append(_once_postgres_answers(store, row_key))

    assert appended == sorted(set(appended))
    talk.carry()
    assert parked(talk) == 0


def _once_postgres_answers(store: TripStore, row_key: object) -> int:
    """A process asks again a second after Postgres was silent."""
    while True:
        try:
            return store.append_cell(row_key, "COMMENT", {"text": "again"}).ref_key  # type: ignore[arg-type]
        except Unavailable:
            continue


def test_a_process_that_begins_without_postgres_knows_that_there_is_a_sequence(talk: Migration) -> None:
    """By the copies that others have left: it refuses to count, and takes what brings its own number."""
    talk.phase(Phase.LIVE)
    row_key = post(talk)
    first = talk.store.append_cell(row_key, "COMMENT", {"text": "a"}).ref_key
    talk.duo.book.learn()
    with behind_proxy(talk) as (store, proxy):
        proxy.refuse()
        with pytest.raises(LegacyUnavailable, match="number"):
            store.append_cell(row_key, "COMMENT", {"text": "b"})
        store.put_cell(row_key, "COMMENT", first + 1, {"text": "changed"})
        store.append_cell(row_key, "FREE", {"text": "counted"})


def test_processes_and_threads_never_give_a_number_twice(talk: Migration) -> None:
    talk.phase(Phase.LIVE)
    rows = [post(talk) for _ in range(3)]
    with closing(talk.connect()) as other, ThreadPoolExecutor(4) as threads:
        calls = [
            threads.submit(store.append_cell, row, "COMMENT", {"text": "a"})
            for row in rows * 10
            for store in (talk.store, other)
        ]
        given = [number(call.result().ref_key) for call in calls]
    assert len(set(given)) == len(given) == 60
    talk.carry()
    assert parked(talk) == 0


def test_a_fork_gives_none_of_its_parents_numbers(talk: Migration) -> None:
    talk.phase(Phase.LIVE)
    row_key = post(talk)
    talk.store.append_cell(row_key, "COMMENT", {"text": "before"})
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            ref_key = talk.store.append_cell(row_key, "COMMENT", {"text": "child"}).ref_key
            os.write(write, str(number(ref_key)).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as pipe:
        of_child = int(pipe.read())
    of_parent = [number(talk.store.append_cell(row_key, "COMMENT", {"text": "p"}).ref_key) for _ in range(3)]
    other = post(talk)
    of_parent += [number(talk.store.append_cell(other, "COMMENT", {"text": "p"}).ref_key) for _ in range(3)]

    assert of_child not in of_parent


def test_the_parents_latest_is_what_was_appended_last(talk: Migration) -> None:
    """Each process has a range of its own: one of higher numbers does not hide what comes after it."""
    talk.phase(Phase.LIVE)
    row_key = post(talk)
    with closing(talk.connect()) as other:
        for store in (talk.store, other, talk.store, other):
            appended = store.append_cell(row_key, "COMMENT", {"text": "last"}).ref_key
            latest = store.get_cell_latest(row_key, "COMMENT")
            assert latest is not None
            assert latest.ref_key == appended


def test_a_sequence_that_was_behind_is_moved_before_the_way_back(talk: Migration) -> None:
    """A restored dump, or rows that an earlier version appended."""
    talk.phase(Phase.DUALWRITE)
    row_key = post(talk)
    last = comment_by_sql(talk, row_key)
    talk.legacy.sql(
        "INSERT INTO comments (id, post_id, post_uuid) SELECT %s, id, post_uuid FROM posts WHERE post_uuid = %s",
        last + 3,
        str(row_key),
    )
    talk.phase(Phase.LIVE)
    talk.carry()
    ports, audit = talk.duo.ports, AuditLog(talk.facade.store.control)
    assert isinstance(ports.legacy, RealLegacyPort)
    done = perform(
        ports,
        HandoverOrder(Direction.BACK, "a test"),
        flags=talk.facade.flags,
        audit=audit,
        max_pause_seconds=3.0,
        move_sequences=ports.legacy.move_sequences,
    )
    talk.duo.watch.look()

    assert done.is_decided
    assert "comments_id_seq" in audit.newest(1)[0].detail
    assert comment_by_sql(talk, row_key) > last + 3


def test_the_number_of_a_row_that_is_ahead_of_the_sequence_is_passed_over(talk: Migration) -> None:
    talk.phase(Phase.DUALWRITE)
    row_key = post(talk)
    last = comment_by_sql(talk, row_key)
    talk.legacy.sql(
        "INSERT INTO comments (id, post_id, post_uuid) SELECT %s + n, id, post_uuid FROM posts, generate_series(1, 2) n"
        " WHERE post_uuid = %s",
        last,
        str(row_key),
    )
    assert number(talk.store.append_cell(row_key, "COMMENT", {"text": "a"}).ref_key) == last + 3


@pytest.mark.parametrize(
    "id_type",
    [
        "bigint GENERATED ALWAYS AS IDENTITY",
        "int GENERATED BY DEFAULT AS IDENTITY (START 100 INCREMENT 5)",
        "int DEFAULT nextval('vote_ids')",
        "bigint GENERATED BY DEFAULT AS IDENTITY (MAXVALUE 6 CYCLE)",
    ],
)
def test_whatever_gives_the_column_its_numbers(servers: LocalServers, stores: Stores, id_type: str) -> None:
    with discussion(servers, stores, id_type=id_type) as made:
        made.phase(Phase.DUALWRITE)
        row_key = post(made)
        by_sql = [comment_by_sql(made, row_key)]
        appended = [number(made.store.append_cell(row_key, "COMMENT", {"text": "a"}).ref_key)]
        made.phase(Phase.LIVE)
        other = post(made)
        appended += [number(made.store.append_cell(row, "COMMENT", {"text": "b"}).ref_key) for row in (row_key, other)]
        made.phase(Phase.DUALWRITE)
        by_sql.append(comment_by_sql(made, row_key))

        assert len({*by_sql, *appended}) == 5


def test_a_sequence_at_its_end_says_so(servers: LocalServers, stores: Stores) -> None:
    with discussion(servers, stores, id_type="bigint GENERATED BY DEFAULT AS IDENTITY (MAXVALUE 3)") as made:
        made.phase(Phase.LIVE)
        row_key = post(made)
        given = [number(made.store.append_cell(row_key, "COMMENT", {"text": "a"}).ref_key) for _ in range(3)]
        assert given == [1, 2, 3]
        with pytest.raises(LegacyRefused, match="no more numbers"):
            made.store.append_cell(row_key, "COMMENT", {"text": "a"})


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_sequence_with_a_cache_is_moved_ahead(servers: LocalServers, stores: Stores, flavour: str) -> None:
    """To draw what our own session held moved nothing: the company's next INSERTs met the number that was put."""
    cached = "bigint GENERATED BY DEFAULT AS IDENTITY (CACHE 10)"
    with discussion(servers, stores, postgres=flavour, id_type=cached) as made:
        made.phase(Phase.DUALWRITE)
        row_key = post(made)
        made.store.append_cell(row_key, "COMMENT", {"text": "our session holds 2 to 10"})
        assert comment_by_sql(made, row_key) == 11
        made.store.put_cell(row_key, "COMMENT", COMMENT.compose(25, 0), {"text": "mine"})

        assert min(comments_by_sql(made, row_key, 10)) > 25
        with made.legacy.ours() as connection:
            (advice,) = advised(connection, talk_layout(), [])
        assert advice.statements == ['ALTER SEQUENCE "public"."comments_id_seq" CACHE 1']


@pytest.mark.parametrize("way", ["after a while", "on new connections"])
def test_a_sequence_that_went_back_is_moved_again(talk: Migration, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """A restored dump, a failover, setval: it was remembered as ahead for as long as the process ran."""
    talk.phase(Phase.DUALWRITE)
    row_key = post(talk)
    last = comment_by_sql(talk, row_key)
    talk.store.put_cell(row_key, "COMMENT", COMMENT.compose(last + 50, 0), {"text": "seen"})
    talk.legacy.sql("SELECT setval('comments_id_seq', %s)", last)
    if way == "after a while":
        monkeypatch.setattr(numbers, "READ_SECONDS", 0.0)
    else:
        talk.legacy.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
        talk.store.get_cell_latest(row_key, "COMMENT")
    talk.store.put_cell(row_key, "COMMENT", COMMENT.compose(last + 20, 0), {"text": "mine"})

    assert comment_by_sql(talk, row_key) == last + 21


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("rises", [True, False])
def test_no_number_is_below_the_tombstone_it_must_follow(servers: LocalServers, flavour: str, rises: bool) -> None:
    """A fact that was appended there was acknowledged and never seen."""
    falling = "ALTER SEQUENCE vote_ids INCREMENT -1 MINVALUE -100 MAXVALUE 100 RESTART 50"
    tables = TABLES.format(id=SERIAL) + ("" if rises else falling)
    database = LegacyDatabase(Legacy(postgres_server(servers, FLAVOURS[flavour]), tables=tables).url)
    drawn = numbers.Numbers(database, talk_layout())
    sequence = drawn.sequences(drawn.deadline())["VOTE"]
    ranges = number_ranges.NumberRanges(drawn)
    with closing(database):
        if rises:
            assert ranges.take("VOTE", sequence, 40_001, must_follow=True) > 40_001
            assert ranges.take("VOTE", sequence, 90_001, must_follow=False) > 90_001
        else:
            with pytest.raises(LegacyRefused, match="above 60"):
                ranges.take("VOTE", sequence, 60, must_follow=True)
            assert ranges.take("VOTE", sequence, 60, must_follow=False) == 50


def test_a_high_number_is_put_while_another_transaction_has_drawn(talk: Migration) -> None:
    """The put failed for as long as that transaction went on."""
    talk.phase(Phase.DUALWRITE)
    row_key = post(talk)
    chosen = comment_by_sql(talk, row_key) + 20_000_000
    with closing(talk.legacy.connect()) as other:
        rows(other, "SELECT nextval('comments_id_seq')")
        put = talk.store.put_cell(row_key, "COMMENT", COMMENT.compose(chosen, 0), {"text": "mine"})
    assert put.status == "CREATED"

    lower = comment_by_sql(talk, row_key) + 500
    talk.store.put_cell(row_key, "COMMENT", COMMENT.compose(lower, 0), {"text": "mine, too"})
    assert comment_by_sql(talk, row_key) > lower  # that the sequence was left where it was is not forgotten
    talk.store.put_cell(row_key, "COMMENT", COMMENT.compose(chosen + 1, 0), {"text": "once it may be moved"})
    assert comment_by_sql(talk, row_key) > chosen + 1
