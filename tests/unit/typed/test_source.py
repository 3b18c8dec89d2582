"""The text of the module: by the layout and the indexes alone, whatever their names are."""

from __future__ import annotations

import ast
from pathlib import Path

from schemaless_core.definitions.index import IndexDefinition
from tests.layouts import document
from tests.models import imported, rows_of, written
from tests.unit.typed.conftest import DRIVERS
from tripstore.backends.postgres.ids.index import legacy_id_index
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.typed import JSON, STRINGS
from tripstore.typed.row import keys_of


def index(name: str, column: str, **fields: str) -> IndexDefinition:
    told = [{"field": field, "type": kind} for field, kind in fields.items()]
    columns = [{"column_key": column, "fields": told}]
    return IndexDefinition.from_document({"table": name, "column_defs": columns}, "the test", "trips")


def test_the_same_layout_writes_the_same_text() -> None:
    first, again = (written(load_layout(document()), [DRIVERS]) for _ in range(2))

    assert first == again


def test_a_column_has_its_fields_in_the_order_of_the_layout() -> None:
    text = written(load_layout(document()))
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    told = {node.name: [ast.unparse(each) for each in node.body if isinstance(each, ast.AnnAssign)] for node in classes}

    assert told == {
        "TripBase": [
            "column_name: ClassVar[str] = 'BASE'",
            "driver_uuid: UUID | None = stored(UUIDS)",
            "status: str | None = stored(STRINGS)",
            "fare: Decimal | None = stored(DECIMALS)",
            "trip_created_at: dt.datetime | TimeText | None = stored(DATETIMES)",
            "tags: tuple[str | None, ...] | NestedArray | None = stored(array_of(STRINGS))",
            "client: Json | Missing = stored(JSON)",
        ],
        "TripStatus": [
            "column_name: ClassVar[str] = 'STATUS'",
            "child_bits: ClassVar[int | None] = 0",
            "result: str | None = stored(STRINGS)",
            "amount: Decimal | None = stored(DECIMALS)",
        ],
        "TripNotes": [
            "column_name: ClassVar[str] = 'NOTES'",
            "child_bits: ClassVar[int | None] = 20",
            "text: str | None = stored(STRINGS, keeps_null=True)",
        ],
    }


def test_without_a_layout_the_indexes_say_which_columns_there_are() -> None:
    text = written(None, [DRIVERS, legacy_id_index("trips")])

    assert [line for line in text.splitlines() if line.startswith("class ")] == [
        "class TripBase(TypedRow):",
        "class TripRating(TypedRow):",
        "class DriverIndex(TypedEntry[UUID]):",
    ]


def test_a_key_that_the_layout_maps_has_its_type_and_one_of_an_extra_that_of_the_index(tmp_path: Path) -> None:
    wanted = document()
    wanted["columns"]["BASE"]["extra"] = "rest"
    base = rows_of(
        imported(written(load_layout(wanted), [index("by_fare", "BASE", status="UUID", city="string")]), tmp_path)
    )

    keys = keys_of(base["BASE"])

    assert (keys["status"].form, keys["city"].form) == (STRINGS, STRINGS)


def test_a_key_on_which_indexes_disagree_is_whatever_the_body_holds(tmp_path: Path) -> None:
    indexes = [index("one", "BASE", city="UUID"), index("other", "BASE", city="string")]

    assert keys_of(rows_of(imported(written(None, indexes), tmp_path))["BASE"])["city"].form is JSON


def test_names_that_stand_in_pythons_way_are_written_beside_the_keys_they_are_of(tmp_path: Path) -> None:
    wanted = document()
    fields = wanted["columns"]["BASE"]["fields"]
    odd = ["class", 'the "quoted" \\ one', "str", "dt", "stored", "ref_key", "a-b", "a b", "é x"]
    for number, name in enumerate(odd):
        fields[name] = {"column": f"odd_{number}", "type": "string"}

    module = imported(written(load_layout(wanted)), tmp_path)

    keys = keys_of(rows_of(module)["BASE"])
    assert [key.name for key in keys.values()][-len(odd) :] == odd
    assert list(keys)[-4:] == ["ref_key_", "a_b", "a_b_2", "é_x"]
