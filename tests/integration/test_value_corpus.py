"""Every case of the corpus round-trips or is refused by name, on both Postgres (I2, I8).

As INSERT, UPDATE and DELETE: by services in hostile sessions, through the facade, and as the reverse mirror writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from uuid import UUID

import psycopg2
import pytest

from schemaless_core import Cell, InvalidCell, SchemalessError
from schemaless_core.cell.canonical import canonical_bytes, from_canonical
from tests.corpus import CASES, Case, Put, Row
from tests.corpus.company import Company, company, has, layout_of, store
from tests.corpus.sessions import HOSTILE
from tests.corpus.writing import FacadeWriting, ReverseWriting, ServiceWriting, Writing
from tripstore.backends.postgres.backend import PostgresBackend
from tripstore.backends.postgres.capture.functions.function import Function
from tripstore.backends.postgres.capture.plan import Made
from tripstore.backends.postgres.cells.past.reader import PastReader
from tripstore.backends.postgres.cells.put.row_writes import RowWrites
from tripstore.backends.postgres.checks.layout import check_layout
from tripstore.backends.postgres.codec import values
from tripstore.backends.postgres.errors import UnreadableRow, Unrepresentable
from tripstore.backends.postgres.wire.connections import RENDERING, connected, rows
from tripstore.handover.ports import Chunk
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers

FLAVOURS: tuple[Flavour, ...] = ("machine", "wheel")
#: A number that no life of a case has.
REFUSED_NUMBER = 1000
CHANGES = """
SELECT ref_key, previous, origin, row IS NULL FROM {place} WHERE row_key = %s AND column_name = %s ORDER BY ref_key
"""

ALL = [(flavour, case) for flavour in FLAVOURS for case in CASES if has(flavour, case)]
WITH_VALUES = [(flavour, case) for flavour, case in ALL if case.misfit is None]
MISFITS = [(flavour, case) for flavour, case in ALL if case.misfit is not None]

Companies = Mapping[Flavour, Company]
#: Ref key and what is to be read there; None: a tombstone.
Expected = list[tuple[int, Row | None]]


def named(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


@pytest.fixture(scope="module")
def companies(servers: LocalServers) -> Iterator[Companies]:
    with ExitStack() as opened:
        yield {
            flavour: opened.enter_context(
                company(servers, flavour, [case for each, case in WITH_VALUES if each == flavour])
            )
            for flavour in FLAVOURS
        }


def check_lives(of: Company, case: Case, store: PostgresBackend, writing: Writing) -> None:
    """Let rows live and die; all that they ever were is read, while it waits for a relay and after it was delivered.

    A put is compared and queued as a service's change is; so it is read back once.
    """
    key = of.new_row()
    compose = of.layout.columns[case.name].compose
    expected: Expected = []
    for n, first, second in case.lives if writing.origin is None else case.readable_lives:
        for version, row in enumerate((first, second, None)):
            if row is None:
                writing.delete(key, n)
            elif version == 0:
                writing.insert(key, n, row)
            else:
                writing.update(key, n, row)
            expected.append((compose(n, version), row))
            if writing.origin is None:  # puts look themselves
                check_latest(store, key, case, expected[-1])
    check_history(store, key, case, expected)
    check_changes(of, key, case, expected, writing.origin)
    if writing.origin is None:
        of.deliver()
        check_history(store, key, case, expected)


def check_latest(store: PostgresBackend, key: UUID, case: Case, expected: tuple[int, Row | None]) -> None:
    ref_key, row = expected
    if row is not None and row.body is None:
        check_unreadable(lambda: store.get_cell_latest(key, case.name), row)
        return
    cell = store.get_cell_latest(key, case.name)
    assert cell is not None
    assert (cell.ref_key, canonical_bytes(cell.body)) == (ref_key, b"null" if row is None else row.body)


def check_history(store: PostgresBackend, key: UUID, case: Case, expected: Expected) -> None:
    """All bytes are the case's. Where some have no body, the others are still there to be read."""
    readable = [(ref_key, b"null" if row is None else row.body) for ref_key, row in expected if not is_refused(row)]
    if len(readable) == len(expected):
        found = store.get_history(key, case.name, limit=1000)
        assert [(cell.ref_key, canonical_bytes(cell.body)) for cell in reversed(found)] == readable
        return
    with pytest.raises(UnreadableRow):
        store.get_history(key, case.name, limit=1000)
    for ref_key, row in expected:
        if row is not None and row.body is None:
            check_unreadable(partial(store.get_cell, key, case.name, ref_key), row)
        else:
            cell = store.get_cell(key, case.name, ref_key)
            assert cell is not None
            assert canonical_bytes(cell.body) == (b"null" if row is None else row.body)


def check_unreadable(read: Callable[[], Cell | None], row: Row) -> None:
    """Refused by name when it is read, or, as a document of one level too many, when its bytes are wanted."""
    try:
        cell = read()
        assert cell is not None
        canonical_bytes(cell.body)
    except UnreadableRow as refused:
        path, reason = refused.path, refused.reason
    except InvalidCell as refused:
        path, reason = refused.path.removeprefix("$."), refused.reason
    else:
        raise AssertionError(f"{row.sql} has a body: {cell}")
    assert path == row.refused
    assert row.because in reason


def is_refused(row: Row | None) -> bool:
    return row is not None and row.body is None


def check_changes(of: Company, key: UUID, case: Case, expected: Expected, origin: str | None) -> None:
    """One change each, in a chain from a row's first to its tombstone. The reverse mirror's wait for no relay."""
    places = ["tripstore.queue", "tripstore.log"]
    if origin == "reverse":
        places.reverse()
    found, nothing = (rows(of.own, CHANGES.format(place=place), (str(key), case.name)) for place in places)
    assert nothing == []
    before = [None if number % 3 == 0 else expected[number - 1][0] for number in range(len(expected))]
    assert found == [
        (ref_key, previous, origin, row is None) for (ref_key, row), previous in zip(expected, before, strict=True)
    ]


def refusal(of: PostgresBackend, key: UUID, case: Case, ref_key: int, put: Put) -> SchemalessError | None:
    """What a put is answered with; None: nothing stood in its way."""
    try:
        of.put_cell(key, case.name, ref_key, from_canonical(put.body))
    except SchemalessError as refused:
        return refused
    return None


def check_refused(found: SchemalessError | None, put: Put) -> None:
    """By name: with the path of the field, and why."""
    assert isinstance(found, Unrepresentable), f"{put.body!r}: {found!r}"
    assert found.path == put.refused, f"{put.body!r}: {found!r}"
    if put.is_refused_by_postgres:
        assert put.because == sqlstate(found), put.body
    else:
        assert put.because in found.reason, put.body


def sqlstate(error: BaseException | None) -> str | None:
    """What Postgres said first."""
    while error is not None and not isinstance(error, psycopg2.Error):
        error = error.__cause__
    return None if error is None else error.pgcode


def check_puts(of: Company, case: Case, store: PostgresBackend) -> None:
    """What no row holds is refused, as a new row and as a change of one, and nothing of it stays."""
    key = of.new_row()
    compose = of.layout.columns[case.name].compose
    good = next((row.body for row in case.rows if row.body is not None), None)
    for number, put in enumerate(case.puts, REFUSED_NUMBER):
        check_refused(refusal(store, key, case, compose(number, 0), put), put)
        assert store.get_cell(key, case.name, compose(number, 0)) is None
        if good is not None:
            store.put_cell(key, case.name, compose(number, 0), from_canonical(good))
            check_refused(refusal(store, key, case, compose(number, 1), put), put)
            latest = store.get_cell_latest(key, case.name)
            assert latest is not None
            assert (latest.ref_key, canonical_bytes(latest.body)) == (compose(number, 0), good)


@pytest.mark.parametrize(("flavour", "case"), WITH_VALUES, ids=str)
def test_i8_a_value_round_trips_or_is_refused_by_name_whichever_client_wrote_it(
    companies: Companies, flavour: Flavour, case: Case
) -> None:
    of = companies[flavour]
    for name in HOSTILE:
        check_lives(of, case, of.stores[name], ServiceWriting(case, of.sessions[name]))


@pytest.mark.parametrize(("flavour", "case"), WITH_VALUES, ids=str)
def test_i2_a_body_that_was_put_is_read_again(companies: Companies, flavour: Flavour, case: Case) -> None:
    of = companies[flavour]
    for name in HOSTILE:
        check_lives(of, case, of.stores[name], FacadeWriting(case, of.stores[name]))


@pytest.mark.parametrize(("flavour", "case"), WITH_VALUES, ids=str)
def test_i2_a_body_that_was_mirrored_back_is_read_again(companies: Companies, flavour: Flavour, case: Case) -> None:
    of = companies[flavour]
    for name in HOSTILE:
        check_lives(of, case, of.stores[name], ReverseWriting(case, of.mirrors[name], of.codec(case)))


@pytest.mark.parametrize(("flavour", "case"), [(flavour, case) for flavour, case in WITH_VALUES if case.puts], ids=str)
def test_i2_a_body_that_no_row_holds_is_refused_by_name(companies: Companies, flavour: Flavour, case: Case) -> None:
    of = companies[flavour]
    for name in HOSTILE:
        check_puts(of, case, of.stores[name])


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_column_whose_values_have_no_text_of_their_own_is_no_field(companies: Companies, flavour: Flavour) -> None:
    """Those of the misfits are refused, and no other."""
    of, misfits = companies[flavour], [case for each, case in MISFITS if each == flavour]
    rows(of.own, ";".join(case.ddl for case in misfits))
    wanted = layout_of([case for each, case in ALL if each == flavour])

    errors = {each.where: each.reason + each.hint for each in check_layout(of.own, wanted) if each.is_error}

    assert errors.keys() == {f"{case.table}.value" for case in misfits}
    for case in misfits:
        assert str(case.misfit) in errors[f"{case.table}.value"]


# ----------------------------------------------------------------------------------------------------- controls

#: Cases whose text follows the session of who wrote, and a session where it does.
UNSTEADY = [
    ("timestamptz", "kolkata"),
    ("timestamptz", "german"),
    ("domain-of-domain", "german"),
    ("float8", "kolkata"),
    ("float8", "latin1"),
    ("float4", "latin1"),
    ("bytea", "kolkata"),
    ("interval", "german"),
    ("date", "german"),
    ("range-time", "kolkata"),
    ("point", "latin1"),
]


@pytest.fixture(scope="module")
def unpinned(servers: LocalServers) -> Iterator[Company]:
    """Capture that renders rows as the writer's session would."""

    def without_settings(made: list[Made]) -> list[Made]:
        return [
            (replace(function, settings={name: function.settings[name] for name in kept(function)}), trigger)
            for function, trigger in made
        ]

    def kept(function: Function) -> set[str]:
        return set(function.settings) - (set(RENDERING) - {"search_path"})

    cases = [named(name) for name in sorted({name for name, _ in UNSTEADY})]
    with company(servers, "machine", cases, without_settings) as made:
        yield made


@pytest.mark.parametrize(("name", "session"), UNSTEADY)
def test_control_without_pinned_settings_the_corpus_notices_who_wrote(
    unpinned: Company, name: str, session: str
) -> None:
    case, of = named(name), unpinned
    with pytest.raises((AssertionError, UnreadableRow)):
        check_lives(of, case, of.stores[session], ServiceWriting(case, of.sessions[session]))


def test_control_deletions_that_are_not_captured_are_noticed(servers: LocalServers) -> None:
    def without_deletions(made: list[Made]) -> list[Made]:
        return [(function, trigger) for function, trigger in made if not function.name.endswith("_deleted")]

    case = named("numeric")
    with company(servers, "wheel", [case], without_deletions) as of, pytest.raises(AssertionError):
        check_lives(of, case, of.stores["kolkata"], ServiceWriting(case, of.sessions["kolkata"]))


def test_control_a_codec_that_loses_something_is_caught(companies: Companies, monkeypatch: pytest.MonkeyPatch) -> None:
    def lossy(self: values.Decimal, text: str) -> str:
        return text.rstrip("0").rstrip(".") if "." in text else text

    monkeypatch.setattr(values.Decimal, "read", lossy)
    case, of = named("numeric"), companies["wheel"]
    with store(of.url, of.layout) as broken, pytest.raises(AssertionError):
        check_lives(of, case, broken, ServiceWriting(case, of.sessions["kolkata"]))


@pytest.mark.parametrize("name", ["numeric-scale", "float4", "char", "jsonb-numbers", "interval"])
def test_control_a_cast_alone_changes_values_silently(
    companies: Companies, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Why a put compares the row that came of it."""
    monkeypatch.setattr(RowWrites, "_compare", lambda *_arguments: None)
    of = companies["machine"]

    with pytest.raises(AssertionError):
        check_puts(of, named(name), of.stores["kolkata"])


def test_control_json_forms_of_values_lose_what_their_texts_keep(companies: Companies) -> None:
    """Why rows are rendered as texts: row_to_json alone gives the same for different values."""
    with connected(companies["wheel"].url, "corpus") as connection:
        pairs = ("'null'::json", "NULL::json"), ("'[2:3]={1,2}'::int[]", "'{1,2}'::int[]")
        for one, other in pairs:
            found = rows(
                connection,
                f"SELECT row_to_json(a)::text = row_to_json(b)::text, a.v::text IS DISTINCT FROM b.v::text"
                f" FROM (SELECT {one} AS v) a, (SELECT {other} AS v) b",
            )

            assert found == [(True, True)]


# ------------------------------------------------------------------------------------------------------------- copies


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_i8_a_copy_of_the_past_has_the_same_bytes_and_refuses_the_same(companies: Companies, flavour: Flavour) -> None:
    """All cases' rows at once: what is read field by field for many rows, and what is left to the careful reading."""
    of = companies[flavour]
    expected, refused = {}, {}
    for case in (case for each, case in WITH_VALUES if each == flavour):
        key, compose = of.new_row(), of.layout.columns[case.name].compose
        session = ServiceWriting(case, of.sessions["kolkata"])
        for n, row in enumerate(case.rows):
            session.insert(key, n, row)
            if row.body is None:
                refused[key, case.name, compose(n, 0)] = row
            else:
                expected[key, case.name, compose(n, 0)] = row.body
    keys = tuple({key for key, _name, _ref_key in (*expected, *refused)})

    with closing(PastReader(of.url, of.layout)) as reader:
        past = reader.read(Chunk(rows=len(keys), keys=keys))

    found = {(UUID(bytes=key), name.decode(), ref_key): body for key, name, ref_key, body in past.cells}
    assert {key: body for key, body in found.items() if key[1] not in ("BASE", "_LEGACY_ID")} == expected
    told = {(each.row_key, each.column_name, each.ref_key): each for each in past.unreadable}
    assert told.keys() == refused.keys()
    for cell_key, row in refused.items():
        assert told[cell_key].field == row.refused
        assert row.because in told[cell_key].reason
    assert len(refused) > 10
    assert len(expected) > 200
