"""Types that bodies can hold, and those that they cannot."""

from __future__ import annotations

import pytest

from tests.integration.layout_check.checking import checked, errors, on_field
from tests.layouts import company_database
from tripstore.backends.postgres.wire.connections import connected, rows
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers


@pytest.mark.parametrize(
    ("type_name", "kind", "words"),
    [
        ("money", "string", "lc_monetary"),
        ("pair", "string", "composite types are not supported"),
        ("pair", "json", "composite types are not supported"),
        ("pair[]", "array", "composite types are not supported"),
        ("regclass", "string", "search_path"),
        ("oid", "string", "points into this very database"),
        ("bytea", "string", "Write type: bytes."),
        ("date", "datetime", "Write type: date."),
        ("inet", "int", "Write type: string."),
        ("int4 GENERATED ALWAYS AS (1 + 1) STORED", "int", "generated column"),
        ("int4 GENERATED ALWAYS AS IDENTITY", "int", "IDENTITY"),
    ],
)
def test_types_that_no_body_can_hold_are_refused_by_name(
    servers: LocalServers, flavour: Flavour, type_name: str, kind: str, words: str
) -> None:
    statements = f"CREATE TYPE pair AS (a int, b int); ALTER TABLE trips ADD odd {type_name}"

    found = errors(checked(servers, flavour, statements, on_field("odd", column="odd", type=kind)))

    assert any(complaint.startswith("trips.odd: ") and words.lower() in complaint.lower() for complaint in found), found


@pytest.mark.parametrize(
    ("type_name", "kind"),
    [
        ("inet", {"type": "string"}),
        ("int4range", {"type": "string"}),
        ("int4multirange", {"type": "string"}),
        ("interval", {"type": "string"}),
        ("time", {"type": "string"}),
        ("xml", {"type": "string"}),
        ("char(3)", {"type": "string"}),
        ("varchar(36)", {"type": "uuid"}),
        ("short", {"type": "string"}),
        ("trip_status[]", {"type": "array"}),
        ("json[]", {"type": "array", "items": "json"}),
        ("short[]", {"type": "array"}),
        ("labels", {"type": "array"}),
        ("timestamp", {"type": "datetime"}),
        ("money_amount", {"type": "decimal"}),
    ],
)
def test_types_with_a_steady_text_are_taken(
    servers: LocalServers, flavour: Flavour, type_name: str, kind: dict[str, object]
) -> None:
    domains = "CREATE DOMAIN short AS varchar(5); CREATE DOMAIN labels AS text[] NOT NULL DEFAULT '{}'"
    statements = f"{domains}; ALTER TABLE trips ADD odd {type_name}"

    assert errors(checked(servers, flavour, statements, on_field("odd", column="odd", **kind))) == []


def test_texts_that_lose_their_blanks_and_arrays_without_commas_are_refused(
    servers: LocalServers, flavour: Flavour
) -> None:
    """Bodies hold the text of a value: what two values share, or what cannot be taken apart, is none."""
    lossy = {"bare": "bpchar", "bare_domain": "padded", "boxes": "box[]", "areas": "area[]"}
    kept = {"fixed": "char(3)", "one": "char", "fixed_domain": "code", "elements": "bpchar[]", "codes": "char(3)[]"}
    domains = "CREATE DOMAIN padded AS bpchar; CREATE DOMAIN code AS char(3); CREATE DOMAIN area AS box"
    adds = ", ".join(f"ADD {name} {type_name}" for name, type_name in (lossy | kept).items())
    fields = [
        on_field(name, column=name, type="array" if type_name.endswith("[]") else "string")
        for name, type_name in (lossy | kept).items()
    ]

    found = errors(checked(servers, flavour, f"{domains}; ALTER TABLE trips {adds}", *fields))

    assert len(found) == len(lossy)
    for name, words in {
        "bare": "Blanks at the end of its values would be lost: make it text",
        "bare_domain": "Blanks at the end of its values would be lost: make it text",
        "boxes": "; is between its elements, not a comma: make it an array of text",
        "areas": "; is between its elements, not a comma: make it an array of text",
    }.items():
        assert any(complaint.startswith(f"trips.{name}: ") and words in complaint for complaint in found), found
    # Why: what these servers make of such values.
    with connected(company_database(servers, flavour, ""), "test") as connection:
        said = rows(
            connection,
            "SELECT 'ab '::bpchar::text, ARRAY['ab ']::bpchar[]::text, 'ab'::char(3)::text,"
            " ARRAY['(1,1),(0,0)', '(1,1),(0,0)']::box[]::text",
        )
    assert said == [("ab", '{"ab "}', "ab", "{(1,1),(0,0);(1,1),(0,0)}")]


def test_not_null_that_was_not_validated_is_no_not_null(servers: LocalServers) -> None:
    statements = "ALTER TABLE trip_notes ALTER n DROP NOT NULL; ALTER TABLE trip_notes ADD NOT NULL n NOT VALID"

    found = errors(checked(servers, "wheel", statements))

    assert any(complaint.startswith("trip_notes.n: may be NULL") for complaint in found), found


def test_a_virtual_generated_column_is_refused_like_a_stored_one(servers: LocalServers) -> None:
    statements = "ALTER TABLE trips ADD odd int GENERATED ALWAYS AS (id::int + 1) VIRTUAL"

    found = errors(checked(servers, "wheel", statements, on_field("odd", column="odd", type="int")))

    assert any(complaint.startswith("trips.odd: is a generated column") for complaint in found), found
