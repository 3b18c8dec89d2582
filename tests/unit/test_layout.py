"""A layout is data: ref keys compose and split, equal layouts have equal digests, its document reads back as itself."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import cast

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from schemaless_core import InvalidRequest
from tests.layouts import document
from tripstore.backends.postgres.layout.layout import (
    NUMBER_MAX,
    VERSION_MAX,
    DeletePolicy,
    Field,
    FieldType,
    Layout,
    Lookup,
    MappedColumn,
    RefKeyKind,
    RefKeySource,
    RowKeySource,
    TableName,
    TombstonePolicy,
)
from tripstore.backends.postgres.layout.reading import load_layout

LAYOUT = load_layout(document())

#: Names as Postgres allows them: capitals, blanks, reserved words, other alphabets, what YAML takes for something else.
NAMES = st.one_of(
    st.sampled_from(["select", "null", "yes", "n", "123", "Trip Id", "größe", "~", "on"]),
    st.text(st.characters(categories=["L", "N"], include_characters="_ $-"), min_size=1, max_size=15).filter(
        lambda name: name.isprintable()
    ),
)
TABLES = st.builds(TableName, st.sampled_from(["public", "Fleet", "s1"]), NAMES)


@st.composite
def fields(draw: st.DrawFn, fresh: count[int]) -> Field:
    """A field on a physical column of its own."""
    kind = draw(st.sampled_from(FieldType))
    lookup, items = None, None
    if kind is FieldType.UUID and draw(st.booleans()):
        lookup = Lookup(draw(TABLES), "key", draw(NAMES.filter(lambda name: name != "key")))
    if kind is FieldType.ARRAY:
        items = draw(st.sampled_from(sorted(set(FieldType) - {FieldType.ARRAY})))
    column = f"{draw(NAMES)}{next(fresh)}"
    return Field(f"{draw(NAMES)}{next(fresh)}", column, kind, lookup, items, draw(st.booleans()))


@st.composite
def columns(draw: st.DrawFn, table: TableName, row_key: RowKeySource, *, is_child: bool) -> MappedColumn:
    fresh = count(1)
    found = draw(st.lists(fields(fresh), max_size=4))
    extra = draw(st.sampled_from([None, "~extra"])) if found else "~extra"
    number = "~number" if is_child else None
    version = draw(st.sampled_from([None, "~version"])) if is_child else "~version"
    return MappedColumn(
        name=draw(NAMES),
        table=table,
        uuid="~parent_uuid" if is_child and draw(st.booleans()) else row_key.uuid,
        parent="~parent" if is_child else None,
        ref_key=RefKeySource(number, version),
        fields=tuple(found),
        extra=extra,
        on_delete=draw(st.sampled_from(DeletePolicy)),
        on_tombstone=TombstonePolicy.REFUSE if is_child else draw(st.sampled_from(TombstonePolicy)),
    )


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    first, *others = draw(st.lists(TABLES, min_size=1, max_size=4, unique=True))
    row_key = RowKeySource(first, "~id", "~uuid")
    made = [draw(columns(first, row_key, is_child=False))]
    made += [draw(columns(table, row_key, is_child=True)) for table in others]
    # Names of columns are unique by their number.
    named = {
        f"{number}{column.name}": replace(column, name=f"{number}{column.name}") for number, column in enumerate(made)
    }
    return Layout("trips", row_key, named)


@given(layouts())
def test_the_document_of_a_layout_reads_back_as_the_same_layout(layout: Layout) -> None:
    assert load_layout(layout.to_document()) == layout


@given(layouts())
def test_a_layout_survives_being_written_as_yaml(tmp_path_factory: pytest.TempPathFactory, layout: Layout) -> None:
    path = tmp_path_factory.getbasetemp() / "written.yaml"
    path.write_text(yaml.safe_dump(layout.to_document(), allow_unicode=True, sort_keys=False), encoding="utf-8")

    found = load_layout(path, "trips")

    assert found == layout
    assert found.digest == layout.digest


@pytest.mark.parametrize("key", ["extra", "on_delete", "on_tombstone"])
def test_layouts_that_differ_have_different_digests(key: str) -> None:
    changed = document()
    changed["columns"]["BASE"][key] = {"extra": "other", "on_delete": "ignore", "on_tombstone": "delete"}[key]

    assert load_layout(changed).digest != LAYOUT.digest


def test_what_a_file_leaves_out_is_said_in_the_document() -> None:
    said = LAYOUT.to_document()

    columns_said = cast("dict[str, dict[str, object]]", said["columns"])
    assert columns_said["STATUS"]["parent"] == {"column": "trip_id", "uuid": "trip_uuid"}
    assert columns_said["STATUS"]["on_delete"] == "tombstone"
    assert columns_said["BASE"]["on_tombstone"] == "refuse"


@pytest.mark.parametrize(
    ("name", "kind"),
    [("BASE", RefKeyKind.VERSION), ("STATUS", RefKeyKind.FACT), ("NOTES", RefKeyKind.CHILD)],
)
def test_the_kind_of_ref_key_follows_from_what_it_is_made_of(name: str, kind: RefKeyKind) -> None:
    assert LAYOUT.columns[name].ref_key.kind is kind


@given(st.integers(0, NUMBER_MAX), st.integers(0, VERSION_MAX))
def test_number_and_version_of_a_child_row_make_one_ref_key_and_come_back(number: int, version: int) -> None:
    ref_key = LAYOUT.ref_key("NOTES", number, version)

    assert LAYOUT.split("NOTES", ref_key) == (number, version)
    assert 0 <= ref_key < 2**62


@given(st.tuples(st.integers(0, NUMBER_MAX), st.integers(0, VERSION_MAX)), st.data())
def test_ref_keys_of_child_rows_order_by_number_then_version(one: tuple[int, int], data: st.DataObject) -> None:
    other = data.draw(st.tuples(st.integers(0, NUMBER_MAX), st.integers(0, VERSION_MAX)))

    assert (LAYOUT.ref_key("NOTES", *one) < LAYOUT.ref_key("NOTES", *other)) == (one < other)


@pytest.mark.parametrize(("number", "version"), [(-1, 0), (0, -1), (NUMBER_MAX + 1, 0), (0, VERSION_MAX + 1)])
def test_a_child_row_beyond_the_ref_keys_is_refused_by_name(number: int, version: int) -> None:
    with pytest.raises(InvalidRequest, match="NOTES has no ref key"):
        LAYOUT.ref_key("NOTES", number, version)


def test_rows_and_facts_have_their_version_and_number_as_they_are() -> None:
    assert (LAYOUT.ref_key("BASE", 0, 7), LAYOUT.split("BASE", 7)) == (7, (0, 7))
    assert (LAYOUT.ref_key("STATUS", 3, 0), LAYOUT.split("STATUS", 3)) == (3, (3, 0))


def test_a_layout_knows_its_parent_children_tables_and_lookups() -> None:
    assert LAYOUT.parent.name == "BASE"
    assert [column.name for column in LAYOUT.children] == ["STATUS", "NOTES"]
    assert {str(table) for table in LAYOUT.tables} == {"trips", "billing_attempts", "trip_notes"}
    assert LAYOUT.lookups == (Lookup(TableName("public", "users"), "id", "user_uuid"),)


def test_captured_are_the_columns_of_fields_and_extra_each_once_in_an_order_of_their_own() -> None:
    captured = ("base_extra", "client", "driver_id", "fare_amount", "request_at", "status", "tags")

    assert LAYOUT.parent.captured == captured
    assert replace(LAYOUT.parent, fields=LAYOUT.parent.fields[::-1]).captured == captured


def test_the_example_of_the_design_is_the_layout_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "layout.yaml"
    path.write_text(
        "row_key: {table: trips, id: id, uuid: trip_uuid}\n"
        "columns:\n"
        "  BASE:\n"
        "    table: trips\n"
        "    ref_key: {version: base_version}\n"
        "    fields:\n"
        "      fare: {column: fare_amount, type: decimal, null: keep}\n"
    )

    layout = load_layout(path, "trips")

    assert layout.parent.fields == (Field("fare", "fare_amount", FieldType.DECIMAL, keeps_null=True),)
