"""What Postgres would refuse is refused while Schemaless is the authority: acknowledged it would be parked for good."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any
from unittest.mock import patch
from uuid import UUID, uuid4

import pytest

from schemaless_core.cell.answers import PutResult
from schemaless_core.cell.canonical import Json
from schemaless_core.cell.cell import Cell
from schemaless_core.cell.put_errors import BatchFailed
from schemaless_core.cell.sharding import shard_of
from schemaless_core.datastore import Datastore
from schemaless_core.deadline import Deadline
from schemaless_core.errors import Unavailable
from schemaless_core.indexes import lookup
from tests.discussions import discussion, parked, post
from tests.facades import Migration
from tests.indexing import catch_up, only_maintained
from tests.legacy_databases import FLAVOURS
from tests.stores import DATASTORE_ENGINES, Stores
from tripstore.backends.postgres.errors import LegacyRefused, LegacyUnavailable, Unrepresentable
from tripstore.facade import references, rule_book
from tripstore.facade.rule_book import RuleBook
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase

RULES = """
ALTER TABLE posts ADD mood mood, ADD code code, ADD price numeric(6, 2), ADD tag varchar(5) NOT NULL DEFAULT 'none',
    ADD stars int, ADD CONSTRAINT stars_of_five CHECK (stars BETWEEN 1 AND 5),
    ADD slug text, ADD CONSTRAINT one_slug UNIQUE (slug),
    ADD previous uuid CONSTRAINT continues REFERENCES posts (post_uuid),
    ADD reply_to bigint CONSTRAINT answers REFERENCES posts (id), ADD quoted bigint
"""
TYPES = """
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE DOMAIN code AS text CHECK (VALUE ~ '^[A-Z]{2}$');
"""
FIELDS: dict[str, Any] = {
    "mood": {"type": "string"},
    "code": {"type": "string"},
    "price": {"type": "decimal"},
    "tag": {"type": "string"},
    "stars": {"type": "int"},
    "slug": {"type": "string"},
    "previous": {"type": "uuid"},
    "reply_to": {"type": "uuid", "lookup": {"table": "posts", "key": "id", "value": "post_uuid"}},
    "quoted": {"type": "uuid", "lookup": {"table": "posts", "key": "id", "value": "post_uuid"}},
}
#: Fields that point to another post: by its UUID, by its id, and by its id without a foreign key.
POINTERS = ("previous", "reply_to", "quoted")
BY_SLUG: Json = {
    "table": "by_slug",
    "column_defs": [{"column_key": "POST", "fields": [{"field": "slug", "type": "string"}]}],
}
FINE: dict[str, Any] = {"title": "a", "mood": "ok", "code": "AB", "price": "1.50", "tag": "x", "stars": 5}
#: What is put in place of a fine value, and what is said of it.
WRONG: dict[str, tuple[Any, str]] = {
    "mood": ("merry", "label"),
    "code": ("ab", "domain"),
    "price": ("1.5", "digits after the point"),
    "tag": (None, "NOT NULL"),
    "stars": (6, "stars_of_five"),
}


@pytest.fixture(scope="module", params=FLAVOURS)
def talk(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with discussion(
        servers, stores, postgres=request.param, types=TYPES, altered=RULES, fields=FIELDS, indexes=[BY_SLUG]
    ) as made:
        yield made


@pytest.fixture(autouse=True)
def live(talk: Migration, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On live, with nothing parked by the test before, on a machine that others use."""
    monkeypatch.setattr(references, "REFERENCE_SECONDS", 20.0)
    talk.phase(Phase.LIVE)
    yield
    carried(talk)
    assert parked(talk) == 0


def carried(talk: Migration) -> None:
    """Everything. A row may be carried before one of another shard that it points to: it goes again, as always."""
    for _ in range(talk.facade.store.config.shards):
        with suppress(Unrepresentable):
            talk.carry()
    talk.carry()


def elsewhere(talk: Migration, row_key: UUID) -> UUID:
    """A row key of another shard: a shard goes no further than its first cell that cannot be carried."""
    shards = talk.facade.store.config.shards
    return next(key for key in iter(uuid4, None) if shard_of(key, shards) != shard_of(row_key, shards))


def wrong(name: str, value: Any) -> dict[str, Any]:
    body = {**FINE, name: value}
    return {key: each for key, each in body.items() if each is not None}


@pytest.mark.parametrize("name", WRONG)
def test_a_value_that_postgres_refuses_is_refused_at_the_put(talk: Migration, name: str) -> None:
    value, reason = WRONG[name]
    row_key = post(talk, **FINE)
    with pytest.raises(Unrepresentable, match=reason) as raised:
        talk.store.put_cell(row_key, "POST", 2, wrong(name, value))
    assert raised.value.path == name
    with pytest.raises(BatchFailed):
        talk.store.put_cells([Cell(row_key, "POST", 2, wrong(name, value))])
    assert talk.store.put_cell(row_key, "POST", 2, FINE | {"title": "b"}).status == "CREATED"


def test_without_rules_it_is_acknowledged_and_what_comes_after_it_waits(
    talk: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: this is what became of it."""
    monkeypatch.setattr(RuleBook, "find", lambda book: None)
    row_key = post(talk, **FINE)
    assert talk.store.put_cell(row_key, "POST", 2, wrong("mood", "calm")).status == "CREATED"
    with pytest.raises(Unrepresentable):
        talk.carry()
    assert parked(talk) > 0
    talk.legacy.sql("ALTER TYPE mood ADD VALUE 'calm'")
    talk.carry()


def test_a_value_that_another_row_has_is_refused_where_an_index_tells(talk: Migration) -> None:
    """Accepted, it was parked: Postgres allows it once."""
    first, second = post(talk, **FINE, slug="a"), post(talk, **FINE, slug="b")
    with pytest.raises(LegacyRefused, match="one_slug"):
        talk.store.put_cell(second, "POST", 2, FINE | {"slug": "a"})
    assert talk.store.put_cell(first, "POST", 2, FINE | {"slug": "a", "title": "same"}).status == "CREATED"
    talk.store.put_cell(first, "POST", 3, FINE | {"slug": "c"})
    talk.carry()
    assert talk.store.put_cell(second, "POST", 2, FINE | {"slug": "a"}).status == "CREATED"


def test_a_value_that_another_row_has_is_refused_however_far_behind_the_index_is(
    talk: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that has it is proof. It was accepted: a query that is too far behind for its cells answers nothing."""
    post(talk, **FINE, slug="seen")
    second = post(talk, **FINE, slug="second")
    catch_up(talk.facade.store)
    monkeypatch.setattr(lookup, "BEHIND_MAX", -1)
    with pytest.raises(LegacyRefused, match="one_slug"):
        talk.store.put_cell(second, "POST", 2, FINE | {"slug": "seen"})
    assert talk.store.put_cell(second, "POST", 2, FINE | {"slug": "never seen"}).status == "CREATED"


def test_an_entry_that_is_left_from_the_past_refuses_nothing(talk: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the control: an index that is behind still has it, and the row's latest cell has not."""
    only_maintained(talk.facade.store)
    first, second = post(talk, **FINE, slug="past"), post(talk, **FINE, slug="present")
    catch_up(talk.facade.store)
    talk.store.put_cell(first, "POST", 2, FINE | {"slug": "moved on"})
    talk.carry()
    monkeypatch.setattr(lookup, "BEHIND_MAX", -1)
    assert [each.row_key for each in talk.facade.store.query_index("by_slug", "past").entries] == [first]
    assert talk.store.put_cell(second, "POST", 2, FINE | {"slug": "past"}).status == "CREATED"


@pytest.mark.parametrize("name", POINTERS)
def test_a_row_that_was_never_there_is_not_pointed_to(talk: Migration, name: str) -> None:
    row_key, nowhere = post(talk, **FINE), str(uuid4())
    with pytest.raises(Unrepresentable, match=nowhere):
        talk.store.put_cell(row_key, "POST", 2, FINE | {name: nowhere})
    with pytest.raises(BatchFailed):
        talk.store.put_cells([Cell(row_key, "POST", 2, FINE | {name: nowhere})])
    there = str(post(talk, **FINE))
    assert talk.store.put_cell(row_key, "POST", 2, FINE | {name: there}).status == "CREATED"
    assert talk.store.put_cell(row_key, "POST", 3, FINE | {name: str(row_key)}).status == "CREATED", "its own row"
    carried(talk)
    assert parked(talk) == 0


@pytest.mark.parametrize("name", POINTERS)
def test_a_row_that_was_deleted_is_pointed_to_only_where_no_foreign_key_stands(talk: Migration, name: str) -> None:
    row_key, gone = post(talk, **FINE), post(talk, **FINE)
    talk.carry()
    talk.store.put_cell(gone, "POST", 2, None)
    wanted = FINE | {name: str(gone)}
    if name == "quoted":
        assert talk.store.put_cell(row_key, "POST", 2, wanted).status == "CREATED"
        return
    with pytest.raises(Unrepresentable, match="was deleted"):
        talk.store.put_cell(row_key, "POST", 2, wanted)


def test_rows_that_a_batch_points_to_may_come_before_it_in_the_batch(talk: Migration) -> None:
    first, second = uuid4(), uuid4()
    cells = [Cell(first, "POST", 1, FINE), Cell(second, "POST", 1, FINE | {"reply_to": str(first)})]
    with pytest.raises(BatchFailed) as failed:
        talk.store.put_cells(cells[::-1])
    assert [type(each) for each in failed.value.results] == [Unrepresentable, PutResult]
    assert {result.status for result in talk.store.put_cells(cells)} == {"CREATED", "EXISTS"}
    third, fourth = uuid4(), uuid4()
    new = [Cell(third, "POST", 1, FINE), Cell(fourth, "POST", 1, FINE | {"reply_to": str(third)})]
    assert {result.status for result in talk.store.put_cells(new)} == {"CREATED"}


def test_a_caller_who_reads_replicas_is_not_refused_for_what_these_lack(talk: Migration) -> None:
    """Schemaless' own view of the row is asked: there is one read more, of its primary."""
    row_key, there = post(talk, **FINE), post(talk, **FINE)
    asked: list[dict[str, Any]] = []
    using = Datastore.using

    def seen(store: Datastore, **habits: Any) -> Datastore:
        asked.append(habits)
        return using(store, **habits)

    with patch.object(Datastore, "using", seen):
        mine = talk.store.using(read="replica")
        assert mine.put_cell(row_key, "POST", 2, FINE | {"previous": str(there)}).status == "CREATED"
        assert {"read": "primary", "deadline": 20.0} in asked
        asked.clear()
        assert mine.put_cell(row_key, "POST", 3, FINE).status == "CREATED"
    assert {"read": "primary", "deadline": 20.0} not in asked, "nothing is asked where nothing is pointed to"


def test_a_question_without_an_answer_is_left_to_postgres(talk: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    row_key, there = post(talk, **FINE), post(talk, **FINE)

    def silent(store: Datastore, *asked: Any) -> Any:
        raise Unavailable("The server of that row is down.", hint="Start it.")

    nowhere = elsewhere(talk, row_key)
    both = FINE | {"previous": str(there), "quoted": str(nowhere)}
    with pytest.raises(Unrepresentable):
        talk.store.put_cell(row_key, "POST", 2, both)
    with monkeypatch.context() as down:
        for verb in ("get_cell_latest", "get_cells_latest"):
            down.setattr(Datastore, verb, silent)
        assert talk.store.put_cell(row_key, "POST", 2, both).status == "CREATED"
    with pytest.raises(Unrepresentable, match="no row of this post_uuid"):
        talk.carry()
    talk.store.put_cell(nowhere, "POST", 1, FINE)
    carried(talk)


def test_control_what_points_nowhere_was_acknowledged_and_parked(
    talk: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    row_key = post(talk, **FINE)
    nowhere = elsewhere(talk, row_key)
    with monkeypatch.context() as without:
        without.setattr(references.References, "find_dangling", lambda *_given: None)
        assert talk.store.put_cell(row_key, "POST", 2, FINE | {"previous": str(nowhere)}).status == "CREATED"
    with pytest.raises(Unrepresentable, match="it points to a row that is not there"):
        talk.carry()
    assert parked(talk) > 0
    talk.store.put_cell(nowhere, "POST", 1, FINE)
    carried(talk)


def test_a_foreign_key_that_was_dropped_refuses_nothing(talk: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_book, "REFUSING_SECONDS", 0.0)
    row_key, nowhere = post(talk, **FINE), str(uuid4())
    talk.legacy.sql("ALTER TABLE posts DROP CONSTRAINT continues")
    try:
        assert talk.store.put_cell(row_key, "POST", 2, FINE | {"previous": nowhere}).status == "CREATED"
        talk.store.put_cell(row_key, "POST", 3, FINE)
        talk.carry()
    finally:
        talk.legacy.sql(
            "ALTER TABLE posts ADD CONSTRAINT continues FOREIGN KEY (previous) REFERENCES posts (post_uuid)"
        )
        talk.duo.book.learn()


def test_a_put_whose_answer_was_lost_exists_though_another_row_has_its_value(talk: Migration) -> None:
    """It was refused: of two puts at the same time neither finds the other."""
    first, second = post(talk, **FINE, slug="p"), post(talk, **FINE, slug="q")
    talk.legacy.sql("ALTER TABLE posts DROP CONSTRAINT one_slug")
    talk.duo.book.learn()
    same = FINE | {"slug": "same"}
    try:
        for row_key in (first, second):
            assert talk.store.put_cell(row_key, "POST", 2, same).status == "CREATED"
        talk.legacy.sql("ALTER TABLE posts ADD CONSTRAINT one_slug UNIQUE (slug)")
        talk.duo.book.learn()
        with pytest.raises(LegacyRefused, match="one_slug"):
            talk.store.put_cell(second, "POST", 3, same | {"title": "new"})
        assert talk.store.put_cell(second, "POST", 2, same).status == "EXISTS"
        assert [result.status for result in talk.store.put_cells([Cell(second, "POST", 2, same)])] == ["EXISTS"]
    finally:
        talk.legacy.sql("ALTER TABLE posts DROP CONSTRAINT IF EXISTS one_slug")
        talk.store.put_cell(second, "POST", 4, FINE | {"slug": "other"})
        talk.carry()
        talk.legacy.sql("ALTER TABLE posts ADD CONSTRAINT one_slug UNIQUE (slug)")
        talk.duo.book.learn()


def test_what_is_history_is_no_row(talk: Migration) -> None:
    row_key = post(talk, **FINE)
    talk.store.put_cell(row_key, "POST", 5, FINE | {"title": "late"})
    assert talk.store.put_cell(row_key, "POST", 3, wrong("stars", 9)).status == "CREATED"


def test_a_label_that_was_added_is_taken_at_once(talk: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_book, "REFUSING_SECONDS", 0.0)
    row_key = post(talk, **FINE)
    with pytest.raises(Unrepresentable):
        talk.store.put_cell(row_key, "POST", 2, wrong("mood", "glad"))
    talk.legacy.sql("ALTER TYPE mood ADD VALUE 'glad'")
    assert talk.store.put_cell(row_key, "POST", 2, wrong("mood", "glad")).status == "CREATED"


def test_a_constraint_that_was_added_is_kept_after_a_while(talk: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    row_key = post(talk, **FINE)
    talk.legacy.sql("ALTER TABLE posts ADD CONSTRAINT no_b CHECK (title <> 'b') NOT VALID")
    talk.duo.book.learn()
    try:
        with pytest.raises(Unrepresentable, match="no_b"):
            talk.store.put_cell(row_key, "POST", 2, FINE | {"title": "b"})
    finally:
        talk.legacy.sql("ALTER TABLE posts DROP CONSTRAINT no_b")
        talk.duo.book.learn()


def test_what_was_put_before_there_was_such_a_rule_exists(talk: Migration) -> None:
    row_key = post(talk, **FINE)
    talk.store.put_cell(row_key, "POST", 2, FINE | {"title": "c"})
    talk.carry()
    talk.legacy.sql("ALTER TABLE posts ADD CONSTRAINT no_c CHECK (title <> 'c') NOT VALID")
    talk.duo.book.learn()
    try:
        assert talk.store.put_cell(row_key, "POST", 2, FINE | {"title": "c"}).status == "EXISTS"
    finally:
        talk.legacy.sql("ALTER TABLE posts DROP CONSTRAINT no_c")
        talk.duo.book.learn()


@pytest.mark.parametrize("engine", DATASTORE_ENGINES)
def test_a_process_that_begins_without_postgres_goes_by_the_copies(
    talk: Migration, stores: Stores, engine: str
) -> None:
    """Also without the control database: each server has one."""
    layout, document = talk.duo.legacy.layout, _document(talk)
    datastore = stores.fresh(engine)
    with closing(Datastore.open(stores.config("sqlite"))) as empty:
        RuleBook(layout, lambda deadline: document, datastore.control, datastore.clusters).learn()
        rules = RuleBook(layout, _silent, empty.control, datastore.clusters).find()
        assert rules is not None
        assert rules.sequences.keys() == {"COMMENT", "VOTE"}
        assert RuleBook(layout, _silent, empty.control, empty.clusters).find() is None


def _document(talk: Migration) -> Any:
    assert talk.duo.book.find() is not None
    return talk.duo.book.document


def _silent(deadline: Deadline) -> Any:
    raise LegacyUnavailable("Postgres is down.", hint="Start it.")
