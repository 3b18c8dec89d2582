"""A layout is checked in full when it is read; every complaint names the key, the value and a fix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.layouts import document
from tripstore.backends.postgres.errors import InvalidLayout
from tripstore.backends.postgres.layout.layout import DeletePolicy, FieldType, Layout, TombstonePolicy
from tripstore.backends.postgres.layout.reading import load_layout

Change = Callable[[dict[str, Any]], object]


def complaint(source: Any, datastore: str | None = "trips") -> str:
    with pytest.raises(InvalidLayout) as refused:
        load_layout(source, datastore)
    assert refused.value.hint
    return str(refused.value)


def put(path: str, value: object) -> Change:
    """Set what stands at a path; a path of one new key adds it."""

    def change(layout: dict[str, Any]) -> None:
        *folders, last = path.split("/")
        place = layout
        for folder in folders:
            place = place[folder]
        place[last] = value

    return change


def drop(path: str) -> Change:
    def change(layout: dict[str, Any]) -> None:
        *folders, last = path.split("/")
        place = layout
        for folder in folders:
            place = place[folder]
        del place[last]

    return change


CASES: list[tuple[Change, str, str]] = [
    # The top.
    (drop("datastore"), "datastore", "is missing"),
    (put("datastore", "rides"), "datastore", "Write datastore: trips"),
    (put("datastore", 5), "datastore", "5 is no datastore name"),
    (put("colums", {}), "colums", "Did you mean columns?"),
    (drop("row_key"), "row_key", "is missing"),
    (put("row_key", "trips"), "row_key", "'trips' is no mapping"),
    (drop("row_key/id"), "row_key.id", "is missing"),
    (put("row_key/uuid", "id"), "row_key.uuid", "is the id too"),
    (put("row_key/id", True), "row_key.id", "in quotes"),
    (put("row_key/table", "a.b.c"), "row_key.table", "more than one dot"),
    (put("row_key/table", "tripstore.queue"), "row_key.table", "not one of the company's"),
    (put("row_key/table", "pg_catalog.pg_class"), "row_key.table", "not one of the company's"),
    (put("row_key/table", 7), "row_key.table", "7 is no table"),
    (put("columns", {}), "columns", "is empty"),
    (put("columns", []), "columns", "is no mapping"),
    # Columns of cells.
    (put("columns/_LEGACY_ID", {}), "columns._LEGACY_ID", "by itself"),
    (put("columns/" + "x" * 65, {}), "columns", "over 64 bytes"),
    (lambda layout: layout["columns"].update({True: {}}), "columns", "in quotes"),
    (put("columns/BASE", None), "columns.BASE", "None is no mapping"),
    (drop("columns/BASE/table"), "columns.BASE.table", "is missing"),
    (put("columns/BASE/on_deletes", 1), "columns.BASE.on_deletes", "Did you mean on_delete?"),
    (put("columns/BASE/on_delete", "forbidd"), "columns.BASE.on_delete", "Did you mean forbid?"),
    (put("columns/BASE/on_tombstone", "ignore"), "columns.BASE.on_tombstone", "Known: refuse, delete."),
    (put("columns/NOTES/on_tombstone", "delete"), "columns.NOTES.on_tombstone", "not for child rows"),
    (drop("columns/BASE"), "columns", "no column is of trips"),
    (put("columns/BASE/table", "journeys"), "columns.BASE.parent", "not of journeys"),
    (drop("columns/NOTES/parent"), "columns.NOTES.ref_key.column", "there is no parent"),
    (put("columns/BASE/parent", {"column": "up"}), "columns.BASE.ref_key.column", "is missing"),
    (put("columns/NOTES/table", "trips"), "columns.NOTES.parent", "Leave parent out."),
    (put("columns/NOTES/table", "billing_attempts"), "columns.NOTES.table", "the table of STATUS too"),
    # Parents.
    (put("columns/NOTES/parent", "trip_id"), "columns.NOTES.parent", "'trip_id' is no mapping"),
    (put("columns/NOTES/parent", {}), "columns.NOTES.parent.column", "is missing"),
    (put("columns/NOTES/parent/id", "x"), "columns.NOTES.parent.id", "is no known key"),
    (put("columns/NOTES/parent/uuid", "trip_id"), "columns.NOTES.parent.column", "is the row key too"),
    # Ref keys.
    (put("columns/BASE/ref_key", {}), "columns.BASE.ref_key", "Write {version: v}"),
    (put("columns/BASE/ref_key", {"column": "n"}), "columns.BASE.ref_key.column", "there is no parent"),
    (put("columns/BASE/ref_key/column", "n"), "columns.BASE.ref_key.column", "there is no parent"),
    (put("columns/NOTES/ref_key", {"version": "v"}), "columns.NOTES.ref_key.column", "differ by a number"),
    (put("columns/NOTES/ref_key/version", "n"), "columns.NOTES.ref_key.version", "Name two columns."),
    (put("columns/NOTES/ref_key/version", "trip_id"), "columns.NOTES.ref_key.version", "is the parent too"),
    (put("columns/NOTES/ref_key/column", "trip_uuid"), "columns.NOTES.ref_key.column", "is the row key too"),
    # Fields.
    (put("columns/NOTES/fields", {}), "columns.NOTES.fields", "is missing"),
    (put("columns/NOTES/fields", ["text"]), "columns.NOTES.fields", "is no mapping"),
    (drop("columns/NOTES/fields/text/type"), "columns.NOTES.fields.text.type", "is missing"),
    (put("columns/NOTES/fields/text/type", "strin"), "columns.NOTES.fields.text.type", "Did you mean string?"),
    (put("columns/NOTES/fields/text/type", None), "columns.NOTES.fields.text.type", "None is not known"),
    (put("columns/NOTES/fields/text/kind", 1), "columns.NOTES.fields.text.kind", "is no known key"),
    (put("columns/NOTES/fields/text/null", "drop"), "columns.NOTES.fields.text.null", "Write null: keep"),
    (put("columns/NOTES/fields/text/items", "int"), "columns.NOTES.fields.text.items", "is for arrays"),
    (put("columns/NOTES/fields/text/column", ""), "columns.NOTES.fields.text.column", "is no name"),
    (put("columns/NOTES/fields/text/column", "é" * 32), "columns.NOTES.fields.text.column", "63 bytes"),
    (put("columns/NOTES/fields/text/column", 'a"b'), "columns.NOTES.fields.text.column", "not supported"),
    (put("columns/NOTES/fields/text/column", "a%b"), "columns.NOTES.fields.text.column", "not supported"),
    (put("columns/NOTES/fields/text/column", "a\nb"), "columns.NOTES.fields.text.column", "not supported"),
    (put("columns/BASE/fields/tags/items", "array"), "columns.BASE.fields.tags.items", "no type of elements"),
    (put("columns/BASE/fields/tags/items", "text"), "columns.BASE.fields.tags.items", "'text' is not known"),
    (put("columns/BASE/fields/fare/column", "status"), "columns.BASE.fields.fare.column", "is field status already"),
    (put("columns/BASE/fields/fare/column", "id"), "columns.BASE.fields.fare.column", "_LEGACY_ID"),
    (put("columns/BASE/fields/fare/column", "trip_uuid"), "columns.BASE.fields.fare.column", "the row key"),
    (put("columns/BASE/fields/fare/column", "base_version"), "columns.BASE.fields.fare.column", "the version"),
    (put("columns/BASE/fields/fare/column", "base_extra"), "columns.BASE.fields.fare.column", "the column of extra"),
    (put("columns/NOTES/fields/text/column", "trip_id"), "columns.NOTES.fields.text.column", "the parent already"),
    (put("columns/BASE/extra", "base_version"), "columns.BASE.extra", "is the version too"),
    (put("columns/BASE/extra", 1.5), "columns.BASE.extra", "in quotes"),
    # Lookups.
    (put("columns/BASE/fields/driver_uuid/type", "int"), "columns.BASE.fields.driver_uuid.lookup", "type: uuid"),
    (
        drop("columns/BASE/fields/driver_uuid/lookup/value"),
        "columns.BASE.fields.driver_uuid.lookup.value",
        "is missing",
    ),
    (
        put("columns/BASE/fields/driver_uuid/lookup/value", "id"),
        "columns.BASE.fields.driver_uuid.lookup.value",
        "is the key too",
    ),
    (put("columns/BASE/fields/driver_uuid/lookup", "users"), "columns.BASE.fields.driver_uuid.lookup", "no mapping"),
]


@pytest.mark.parametrize(("change", "key", "words"), CASES)
def test_a_layout_that_cannot_be_is_refused_by_key_with_a_fix(change: Change, key: str, words: str) -> None:
    layout = document()
    change(layout)

    said = complaint(layout, None if "datastore" not in layout else "trips")

    assert f": {key}: " in said
    assert words in said


#: What a person, a template or a program may leave anywhere in a document.
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["trips", "id", "trip_id", "n", "uuid", "keep", "a.b.c", "\ud800", "array", "fact"]),
    st.lists(st.text(max_size=3), max_size=2),
    st.dictionaries(st.one_of(st.text(max_size=6), st.none(), st.booleans(), st.integers()), st.text(max_size=3)),
)


def places(value: object, path: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    """Paths of everything in a document."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from places(inner, (*path, key))


def taken_or_refused(layout: dict[str, Any]) -> Layout | InvalidLayout:
    try:
        return load_layout(layout)
    except InvalidLayout as refused:
        return refused


@given(st.sampled_from(list(places(document()))), ODD)
def test_whatever_stands_at_any_place_is_taken_or_refused_with_a_hint(path: tuple[Any, ...], odd: object) -> None:
    layout = document()
    place = layout
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = odd

    found = taken_or_refused(layout)

    if isinstance(found, InvalidLayout):
        assert found.hint
    else:
        assert load_layout(found.to_document()) == found


def test_the_layout_that_the_cases_change_is_a_good_one() -> None:
    layout = load_layout(document(), "trips")

    assert layout.columns["BASE"].fields_by_name["tags"].items is FieldType.STRING
    assert layout.columns["NOTES"].uuid == "trip_uuid"
    assert layout.columns["NOTES"].fields_by_name["text"].column == "text"
    assert layout.columns["BASE"].on_delete is DeletePolicy.TOMBSTONE
    assert layout.columns["BASE"].on_tombstone is TombstonePolicy.REFUSE


def test_the_number_of_a_child_row_may_be_a_field_of_its_body_too() -> None:
    layout = document()
    layout["columns"]["STATUS"]["fields"]["attempt_no"] = {"type": "int"}

    assert "attempt_no" in load_layout(layout).columns["STATUS"].captured


def test_a_column_with_extra_alone_needs_no_fields() -> None:
    layout = document()
    del layout["columns"]["NOTES"]["fields"]
    layout["columns"]["NOTES"]["extra"] = "note_extra"

    assert load_layout(layout).columns["NOTES"].captured == ("note_extra",)


@pytest.mark.parametrize("spelling", ["Decimal", "DECIMAL", "decimal"])
def test_types_may_be_written_in_any_case(spelling: str) -> None:
    layout = document()
    layout["columns"]["BASE"]["fields"]["fare"]["type"] = spelling

    assert load_layout(layout).columns["BASE"].fields_by_name["fare"].kind is FieldType.DECIMAL


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("columns: {", "is no YAML"),
        ("a: b: c", "is no YAML"),
        ("[1, 2]", "a list is no mapping"),
        ("", "None is no mapping"),
        ("row_key: {table: trips, id: id, id: other, uuid: u}", "names 'id' twice"),
        ("columns:\n  BASE: {}\n  BASE: {}\n", "line 3, column 3: names 'BASE' twice"),
    ],
)
def test_a_file_that_is_no_layout_is_named_with_what_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "layout.yaml"
    path.write_text(text)

    said = complaint(path)

    assert str(path) in said
    assert words in said


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe")

    assert "cannot be read (No such file" in complaint(tmp_path / "none.yaml")
    assert "no text in UTF-8" in complaint(tmp_path / "bytes.yaml")
    assert "Is a directory" in complaint(tmp_path)


def test_anchors_and_merges_of_yaml_work(tmp_path: Path) -> None:
    path = tmp_path / "layout.yaml"
    path.write_text(
        "row_key: {table: trips, id: id, uuid: trip_uuid}\n"
        "columns:\n"
        "  BASE:\n"
        "    table: trips\n"
        "    ref_key: {version: base_version}\n"
        "    fields:\n"
        "      fare: &money {type: decimal}\n"
        "      tip: {<<: *money, null: keep}\n"
    )

    tip = load_layout(path, "trips").parent.fields_by_name["tip"]

    assert (tip.kind, tip.keeps_null) == (FieldType.DECIMAL, True)
