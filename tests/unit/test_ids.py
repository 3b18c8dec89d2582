"""The UUID of an id, and what is none."""

from __future__ import annotations

from uuid import UUID, uuid3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemaless_core import InvalidRequest
from schemaless_core.cell.canonical import canonical_bytes
from tests.integration.id_company import LAYOUT, layout
from tripstore.backends.postgres.ddl.ddl import our_name
from tripstore.backends.postgres.ids.ids import ID_MAX, ID_MIN, NAMESPACE, Ids, legacy_id_body, uuid_of_id
from tripstore.backends.postgres.ids.key_backfill import FillPace, _next_size
from tripstore.backends.postgres.ids.steps import id_steps, key_columns
from tripstore.backends.postgres.layout.layout import TableName


def test_the_uuid_of_an_id_never_changes_from_release_to_release() -> None:
    assert uuid_of_id(LAYOUT, 1) == UUID("6933131d-9563-37e0-bf4f-74f14438ad8d")
    assert uuid_of_id(LAYOUT, -(2**63)) == UUID("89d5fbf1-7dc8-318c-aca6-155a00ec4d00")
    assert uuid_of_id(LAYOUT, 5) == uuid3(NAMESPACE, "public.trips/5")


@given(st.sets(st.integers(ID_MIN, ID_MAX), min_size=2))
def test_ids_have_different_uuids_of_version_3(numbers: set[int]) -> None:
    uuids = {uuid_of_id(LAYOUT, number) for number in numbers}

    assert len(uuids) == len(numbers)
    assert {uuid.version for uuid in uuids} == {3}


def test_tables_have_different_uuids() -> None:
    other = layout(source=TableName("archive", "trips"))

    assert uuid_of_id(LAYOUT, 1) != uuid_of_id(other, 1)


@pytest.mark.parametrize("number", [True, 1.0, "1", None, 2**63, -(2**63) - 1])
def test_what_is_no_id_is_refused_before_anybody_is_asked(number: int) -> None:
    ids = Ids(lambda _statement, _parameters: pytest.fail("asked"), LAYOUT)

    with pytest.raises(InvalidRequest, match="is no legacy id"):
        ids.resolve_id(number)
    with pytest.raises(InvalidRequest, match="is no legacy id"):
        uuid_of_id(LAYOUT, number)
    with pytest.raises(InvalidRequest, match="is no row key"):
        ids.legacy_id(number)  # type: ignore[arg-type]  # that is the point


def test_nothing_is_asked_for_nothing() -> None:
    ids = Ids(lambda _statement, _parameters: pytest.fail("asked"), LAYOUT)

    assert ids.resolve_ids([]) == {}
    assert ids.legacy_ids([]) == {}


def test_the_body_of_a_legacy_id_is_what_the_design_says() -> None:
    assert canonical_bytes(legacy_id_body(123)) == b'{"id":123}'


def test_the_steps_have_titles_of_their_own_and_say_what_they_would_run() -> None:
    steps = id_steps(LAYOUT)

    assert len({step.title for step in steps}) == len(steps) == 20
    assert all(step.statements() for step in steps)
    assert [column.is_child for column in key_columns(LAYOUT)] == [False, True, True, True]


@pytest.mark.parametrize("name", ["trips", "t" * 63, "ü" * 40])
def test_names_of_ours_fit_into_postgres_and_stay_apart(name: str) -> None:
    first, second = our_name("tripstore", name, "trip_uuid"), our_name("tripstore", name, "trip_uuids")

    assert first != second
    assert all(len(each.encode()) <= 63 and each.startswith("tripstore_") for each in (first, second))


@pytest.mark.parametrize(("took", "size"), [(0.0, 200), (0.05, 200), (0.1, 100), (0.2, 50), (10.0, 25)])
def test_a_batch_grows_and_shrinks_towards_its_time(took: float, size: int) -> None:
    assert _next_size(100, took, FillPace(batch_seconds=0.1)) == size


def test_a_batch_has_a_row_and_never_too_many() -> None:
    assert _next_size(1, 10.0, FillPace()) == 1
    assert _next_size(9_000, 0.0, FillPace(most_rows=10_000)) == 10_000
