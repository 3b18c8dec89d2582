"""Index definitions are the article's YAML; every complaint names where, what and a way out."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import yaml

from schemaless_core import Cell, InvalidConfig, InvalidRequest, Json
from schemaless_core.definitions.index import (
    FieldComplaint,
    IndexDefinition,
    IndexField,
    SourceColumn,
    load_definitions,
)
from schemaless_core.definitions.values import IndexFieldType

#: As in the article, but for its dashes.
ARTICLE = """\
table: driver_partner_index # Name of the index.
datastore: trips                  # Name of the associated datastore
column_defs:
 - column_key: BASE          # From which column to fetch from.
   fields: # The fields in the cell to denormalize
   - { field: driver_partner_uuid, type: UUID}
   - { field: city_uuid, type: UUID}
   - { field: trip_created_at, type: datetime}
"""
DRIVER = UUID(int=5)
TWO_COLUMNS = IndexDefinition(
    "trips_by_driver",
    "trips",
    (
        SourceColumn("BASE", (IndexField("driver", IndexFieldType.UUID), IndexField("fare", IndexFieldType.DECIMAL))),
        SourceColumn(
            "STATUS", (IndexField("status", IndexFieldType.STRING), IndexField("attempts", IndexFieldType.INT))
        ),
    ),
)


def field(**changes: Any) -> dict[str, Any]:
    return {"field": "driver", "type": "UUID"} | changes


def column(**changes: Any) -> dict[str, Any]:
    return {"column_key": "BASE", "fields": [field()]} | changes


def document(**changes: Any) -> dict[str, Any]:
    return {"table": "by_driver", "datastore": "trips", "column_defs": [column()]} | changes


def complaint(setting: Any, folder: Path = Path("/srv")) -> InvalidConfig:
    with pytest.raises(InvalidConfig) as refused:
        load_definitions(setting, folder, "trips")
    assert refused.value.hint
    return refused.value


def cell(column_name: str, body: Json, ref_key: int = 1) -> Cell:
    return Cell(uuid4(), column_name, ref_key, body)


# ------------------------------------------------------------------------------------------------ definitions


def test_the_definition_of_the_article_loads(tmp_path: Path) -> None:
    (tmp_path / "driver_partner_index.yaml").write_text(ARTICLE)

    (definition,) = load_definitions(str(tmp_path), Path("/"), "trips")

    assert (definition.name, definition.datastore) == ("driver_partner_index", "trips")
    assert definition.columns == (
        SourceColumn(
            "BASE",
            (
                IndexField("driver_partner_uuid", IndexFieldType.UUID),
                IndexField("city_uuid", IndexFieldType.UUID),
                IndexField("trip_created_at", IndexFieldType.DATETIME),
            ),
        ),
    )
    assert definition.shard_field.name == "driver_partner_uuid"
    assert definition.column_names == ("BASE",)


@pytest.mark.parametrize("dash", ["–", "—", "−", "‐"])
def test_dashes_pasted_from_the_article_are_named(tmp_path: Path, dash: str) -> None:
    (tmp_path / "pasted.yaml").write_text(ARTICLE.replace(" - ", f" {dash} "))

    error = complaint(str(tmp_path))

    assert error.key == f"{tmp_path / 'pasted.yaml'}: line 4"
    assert repr(dash) in str(error)
    assert "ASCII hyphen" in str(error)


def test_dashes_in_a_definition_that_yaml_took_for_text_are_named() -> None:
    as_text = complaint([document(column_defs="– column_key: BASE")])
    as_key = complaint([document(column_defs={"– column_key": "BASE"})])
    as_field = complaint([document(column_defs=[column(fields=["– driver UUID"])])])

    assert (as_text.key, as_key.key) == ("indexes[0]: column_defs", "indexes[0]: column_defs")
    assert as_field.key == "indexes[0]: column_defs[0].fields[0]"
    for error in (as_text, as_key, as_field):
        assert "en dash" in str(error)


@pytest.mark.parametrize("name", ["uuid", "UUID", "Uuid", "STRING", "Int", "float", "Decimal", "boolean", "DateTime"])
def test_types_are_named_in_any_case(name: str) -> None:
    (definition,) = load_definitions([document(column_defs=[column(fields=[field(type=name)])])], Path(), "trips")

    assert definition.shard_field.kind.value.lower() == name.lower()


def test_a_definition_goes_through_its_document_and_yaml_and_back() -> None:
    text = yaml.safe_dump(TWO_COLUMNS.to_document())

    again = IndexDefinition.from_document(yaml.safe_load(text), "control")

    assert again == TWO_COLUMNS
    assert again.digest == TWO_COLUMNS.digest


def test_a_digest_tells_definitions_apart() -> None:
    other_type = [column(fields=[field(type="string")])]
    definitions = [
        IndexDefinition.from_document(each, "here")
        for each in (document(), document(table="by_rider"), document(column_defs=other_type))
    ]

    assert len({definition.digest for definition in definitions}) == 3


def test_a_definition_without_a_datastore_is_of_the_one_that_names_it() -> None:
    without = document()
    del without["datastore"]

    (definition,) = load_definitions([without], Path(), "trips")

    assert definition.datastore == "trips"
    with pytest.raises(InvalidConfig, match="datastore: is missing"):
        IndexDefinition.from_document(without, "control")


def test_nothing_configured_is_no_index(tmp_path: Path) -> None:
    assert load_definitions(None, Path(), "trips") == ()
    assert load_definitions([], Path(), "trips") == ()
    assert load_definitions(str(tmp_path), Path(), "trips") == ()


def test_a_folder_gives_its_yaml_files_in_order_of_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "indexes"
    folder.mkdir()
    for name, suffix in [("b", "yaml"), ("a", "yml"), ("c", "txt")]:
        (folder / f"{name}.{suffix}").write_text(yaml.safe_dump(document(table=f"by_{name}")))

    definitions = load_definitions("indexes", tmp_path, "trips")

    assert [definition.name for definition in definitions] == ["by_a", "by_b"]


def test_a_list_mixes_files_and_definitions(tmp_path: Path) -> None:
    (tmp_path / "article.yaml").write_text(ARTICLE)

    definitions = load_definitions(["article.yaml", document()], tmp_path, "trips")

    assert [definition.name for definition in definitions] == ["driver_partner_index", "by_driver"]


@pytest.mark.parametrize(
    ("definition", "key", "says"),
    [
        (7, "indexes[0]", "7 is no mapping"),
        ([], "indexes[0]", "a list is no mapping"),
        ({}, "indexes[0]: table", "is missing"),
        (document(tabel="x"), "indexes[0]: tabel", "Did you mean table?"),
        (document(name="x"), "indexes[0]: name", "Known keys: table, datastore, column_defs."),
        (document(table=None), "indexes[0]: table", "None is no name for an index"),
        (document(table="DriverIndex"), "indexes[0]: table", "'DriverIndex' is no name for an index"),
        (document(table="driver-index"), "indexes[0]: table", "lower-case letters"),
        (document(table="i" * 49), "indexes[0]: table", "up to 48"),
        (document(table="by_driver\n"), "indexes[0]: table", "is no name"),
        (document(table="2nd"), "indexes[0]: table", "no digit first"),
        (document(datastore="rides"), "indexes[0]: datastore", "'rides' is not the datastore of this configuration"),
        (document(datastore=5), "indexes[0]: datastore", "5 is no datastore name"),
        (document(column_defs=None), "indexes[0]: column_defs", "None is no list"),
        (document(column_defs=[]), "indexes[0]: column_defs", "is empty"),
        (document(column_defs=column()), "indexes[0]: column_defs", "a mapping is no list"),
        (document(column_defs=["BASE"]), "indexes[0]: column_defs[0]", "'BASE' is no mapping"),
        (document(column_defs=[{"fields": []}]), "indexes[0]: column_defs[0].column_key", "is missing"),
        (document(column_defs=[column(colum="x")]), "indexes[0]: column_defs[0].colum", "Did you mean column_key?"),
        (document(column_defs=[column(column_key=False)]), "indexes[0]: column_defs[0].column_key", "in quotes"),
        (document(column_defs=[column(column_key="")]), "indexes[0]: column_defs[0].column_key", "is empty"),
        (document(column_defs=[column(column_key="x" * 65)]), "indexes[0]: column_defs[0].column_key", "64 bytes"),
        (document(column_defs=[column(fields=[])]), "indexes[0]: column_defs[0].fields", "is empty"),
        (document(column_defs=[column(fields="driver")]), "indexes[0]: column_defs[0].fields", "'driver' is no list"),
        (document(column_defs=[column(fields=["driver"])]), "indexes[0]: column_defs[0].fields[0]", "is no mapping"),
        (
            document(column_defs=[column(fields=[{"field": "driver"}])]),
            "indexes[0]: column_defs[0].fields[0].type",
            "is missing",
        ),
        (
            document(column_defs=[column(fields=[field(field=True)])]),
            "indexes[0]: column_defs[0].fields[0].field",
            "in quotes",
        ),
        (
            document(column_defs=[column(fields=[field(field="driver.uuid")])]),
            "indexes[0]: column_defs[0].fields[0].field",
            "'driver.uuid' is no name for a field",
        ),
        (
            document(column_defs=[column(fields=[field(), field(field="b", type="bool")])]),
            "indexes[0]: column_defs[0].fields[1].type",
            "Did you mean boolean?",
        ),
        (
            document(column_defs=[column(fields=[field(type="money")])]),
            "indexes[0]: column_defs[0].fields[0].type",
            "Types: UUID, string, int, float, decimal, boolean, datetime.",
        ),
        (
            document(column_defs=[column(fields=[field(type=None)])]),
            "indexes[0]: column_defs[0].fields[0].type",
            "None is no type",
        ),
        (document(column_defs=[column(), column()]), "indexes[0]: column_defs", "the column 'BASE' twice"),
        (
            document(column_defs=[column(), column(column_key="NOTES")]),
            "indexes[0]: column_defs",
            "the field 'driver' twice",
        ),
        (
            document(column_defs=[column(fields=[field(field=f"f{n}") for n in range(65)])]),
            "indexes[0]: column_defs",
            "65 fields, 64 are allowed",
        ),
    ],
)
def test_a_definition_that_cannot_be_is_refused(definition: Any, key: str, says: str) -> None:
    error = complaint([definition])

    assert error.key == key
    assert says in str(error)


def test_two_indexes_of_one_name_are_refused(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.yaml").write_text(ARTICLE)

    error = complaint(str(tmp_path))

    assert error.key == f"{tmp_path / 'b.yaml'}: table"
    assert str(tmp_path / "a.yaml") in str(error)


def test_what_is_neither_a_folder_nor_a_list_is_refused(tmp_path: Path) -> None:
    (tmp_path / "article.yaml").write_text(ARTICLE)

    for setting in ("nowhere", "article.yaml"):
        error = complaint(setting, tmp_path)
        assert error.key == "indexes"
        assert repr(str(tmp_path / setting)) in str(error)
        assert "in a list" in str(error)
    for wrong in (5, True, document()):
        assert complaint(wrong).key == "indexes"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff\xfe", "is no text in UTF-8"),
        (b"table: [\n", "is no YAML at line 2"),
        (b"table: a\n---\ntable: b\n", "is no YAML at line 2"),
        (b"", "None is no mapping"),
        (b"- a\n", "a list is no mapping"),
        (b"at: 2026-13-45\n", "is no YAML"),
    ],
)
def test_a_file_that_is_no_definition_is_named(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "index.yaml"
    file.write_bytes(content)

    error = complaint(["index.yaml"], tmp_path)

    assert error.key == str(file)
    assert says in str(error)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    error = complaint([document(), "missing.yaml"], tmp_path)

    assert error.key == "indexes[1]"
    assert repr(str(tmp_path / "missing.yaml")) in str(error)


# ------------------------------------------------------------------------------------------------- its fields


def test_fields_stand_in_the_order_of_the_definition() -> None:
    assert [each.name for each in TWO_COLUMNS.fields] == ["driver", "fare", "status", "attempts"]
    assert TWO_COLUMNS.position_of("status") == 2
    assert TWO_COLUMNS.field("fare") == IndexField("fare", IndexFieldType.DECIMAL)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("far", "Did you mean fare?"), ("zzz", "Fields: driver, fare, status, attempts."), (7, "Fields"), ([], "Fields")],
)
def test_an_unknown_field_is_named_with_the_one_that_was_meant(name: Any, hint: str) -> None:
    with pytest.raises(InvalidRequest, match="Index trips_by_driver has no field") as refused:
        TWO_COLUMNS.field(name)

    assert hint in str(refused.value)


def test_fields_come_from_the_latest_cells_of_their_columns() -> None:
    found = TWO_COLUMNS.fields_of(
        {
            "BASE": cell("BASE", {"driver": str(DRIVER), "fare": "12.50", "other": 1}),
            "STATUS": cell("STATUS", {"status": "paid", "attempts": 2}),
        }
    )

    assert found.values[0] == DRIVER
    assert [str(value) for value in found.values[1:]] == ["12.5", "paid", "2"]
    assert found.complaints == ()


@pytest.mark.parametrize("status", [None, cell("STATUS", None), cell("STATUS", {}), cell("STATUS", {"status": None})])
def test_what_no_cell_holds_is_missing_without_a_complaint(status: Cell | None) -> None:
    found = TWO_COLUMNS.fields_of({"BASE": cell("BASE", {"driver": str(DRIVER)}), "STATUS": status})

    assert found.values == (DRIVER, None, None, None)
    assert found.complaints == ()
    assert TWO_COLUMNS.fields_of({}).values == (None, None, None, None)


def test_a_value_that_does_not_parse_is_missing_and_complained_about_without_being_told() -> None:
    found = TWO_COLUMNS.fields_of(
        {
            "BASE": cell("BASE", {"driver": str(DRIVER), "fare": "s3cr3t"}, ref_key=4),
            "STATUS": cell("STATUS", {"status": "x" * 513, "attempts": 1}, ref_key=-2),
        }
    )

    assert found.values == (DRIVER, None, None, 1)
    assert found.complaints == (
        FieldComplaint("fare", "BASE", 4, "it is no number"),
        FieldComplaint("status", "STATUS", -2, "it is longer than 512 bytes"),
    )


@pytest.mark.parametrize("body", ["text", 7, [], False])
def test_a_body_that_is_no_object_is_one_complaint(body: Json) -> None:
    found = TWO_COLUMNS.fields_of({"STATUS": cell("STATUS", body, ref_key=3)})

    assert found.values == (None, None, None, None)
    assert found.complaints == (
        FieldComplaint("status", "STATUS", 3, f"the body is a {type(body).__name__}, not an object"),
    )
