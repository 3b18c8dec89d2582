"""New child rows by SQL, in a text or made by a function of the company's; and what is nearly so, and stays."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

import pytest

from tests.rewritten_service import DB, rewrite_service, write_service
from tests.unit.audit_rewrite.forms import HEAD, added
from tripstore.audit.rewrite.verdicts import CodeRewrite, RewriteVerdict

UNIT = "with cursor_of_unit() as c:\n    "
FIELDS = '("trip_id", "n"), {"text": ("text", rewritten.text_value)}, bits=20, parent_column="BASE", number_bits=64'
NEW = 'rewritten.insert_child_of_id(store, "NOTES", '
INSERT = "INSERT INTO notes (trip_id, n, text) VALUES (%s, %s, %s)"
ONLY_KEY = "INSERT INTO notes (trip_id, n) VALUES (%s, 7)"


def rewritten(folder: Path, code: str) -> CodeRewrite:
    head = (
        dedent(HEAD)
        .replace("cursor_of_unit, ", "cursor_of_unit, fetch_value, fill, insert_row, ")
        .replace("Note, Trip", "Note, Trip, new_note")
    )
    return rewrite_service(write_service(folder, head + indent(dedent(code).strip("\n"), "    ") + "\n"))


OVER = "ON CONFLICT (trip_id, n) DO UPDATE SET text = EXCLUDED.text"


FORMS = [
    (
        f'c.execute("{INSERT}", (n, at, value))',
        f'{NEW}{{"trip_id": n, "n": at, "text": value}}, {FIELDS})',
    ),
    (
        f'c.execute("{ONLY_KEY}", [n])',
        NEW + '{"trip_id": n, "n": 7}, ("trip_id", "n"), {}, ' + FIELDS[FIELDS.index("bits=") :] + ")",
    ),
    (
        f'c.execute("{INSERT} ON CONFLICT (trip_id, n) DO NOTHING", value)',
        f'{NEW}{{"trip_id": value[0], "n": value[1], "text": value[2]}}, {FIELDS}, unless_there=True)',
    ),
    (
        f'c.execute("{INSERT} ON CONFLICT (n, trip_id) DO UPDATE SET text = EXCLUDED.text", (n, 1, "x"))',
        f'{NEW}{{"trip_id": n, "n": 1, "text": "x"}}, {FIELDS}, changes=("text",))',
    ),
    (
        'insert_row(c, "notes", {"trip_id": n} | new_note(at, value))',
        f'{NEW}{{"trip_id": n}} | new_note(at, value), {FIELDS})',
    ),
    (
        'insert_row(c, "notes", {"trip_id": n, "n": 1, "text": "x"}, "ON CONFLICT (trip_id, n) DO NOTHING")',
        f'{NEW}{{"trip_id": n, "n": 1, "text": "x"}}, {FIELDS}, unless_there=True)',
    ),
]


LAST = 'rewritten.last_number(store, n, "NOTES", bits=20'
FORMS += [
    ('return fetch_value(c, "SELECT max(n) FROM notes WHERE trip_id = %s", (n,))', f"return {LAST})"),
    (
        'return 1 + fetch_value(c, "SELECT coalesce(max(n), 5) FROM notes WHERE trip_id = %(n)s", {"n": n})',
        f"return 1 + {LAST}, default=5)",
    ),
    (
        'return fetch_value(c, "SELECT status FROM trips WHERE id = %s", (n,))',
        'return rewritten.value_of(rewritten.latest_of_id(store, n, "BASE"), "status")',
    ),
]
VALUES = [
    ("SELECT max(n) FROM notes WHERE n = %s", "more than the numbers"),
    ("SELECT max(text) FROM notes WHERE trip_id = %s", "more than the numbers"),
    ("SELECT max(n) FROM notes WHERE trip_id > %s", "key of one row"),
    ("SELECT min(n) FROM notes WHERE trip_id = %s", "an aggregate"),
    ("SELECT max(n) FILTER (WHERE n < 5) FROM notes WHERE trip_id = %s", "an aggregate"),
    ("SELECT max(n) + 1 FROM notes WHERE trip_id = %s", "an aggregate"),
    ("SELECT coalesce(max(n), trip_id) FROM notes WHERE trip_id = %s", "an aggregate"),
    ("SELECT id FROM trips WHERE id = %s FOR UPDATE", "locks rows"),
    ("SELECT status, fare FROM trips WHERE id = %s", "tuples of a cursor"),
    ("SELECT status FROM trips WHERE status = %s", "key of one row"),
]


@pytest.mark.parametrize(("statement", "reason"), VALUES)
def test_a_value_that_is_nearly_the_last_number_stays(tmp_path: Path, statement: str, reason: str) -> None:
    found = rewritten(tmp_path, f'{UNIT}return fetch_value(c, "{statement}", (n,))')

    assert "rewritten." not in "".join(file.after for file in found.changed)
    said = [each.reason for each in found.uses if each.verdict is RewriteVerdict.LEFT]
    assert any(reason in each for each in said), said


@pytest.mark.parametrize(("old", "new"), FORMS)
def test_a_new_child_row_is_put_with_what_the_text_says_of_one_that_is_there(
    tmp_path: Path, old: str, new: str
) -> None:
    assert added(rewritten(tmp_path, UNIT + old)) == UNIT + new


LEFT = [
    ("c.execute(\"INSERT INTO trips (id, status) VALUES (%s, 'x')\", (n,))", "come from Postgres"),
    ('insert_row(c, "trips", {"status": "x"})', "come from Postgres"),
    ('insert_row(c, value, {"trip_id": n, "n": 1})', ""),
    ('insert_row(c, "notes", value)', "run time only"),
    ('insert_row(c, "notes", {"trip_id": n, "n": 1}, value)', "name of the table"),
    ('insert_row(c, "notes", {"trip_id": n, "n": 1}, "RETURNING n")', "come from Postgres"),
    ('x = insert_row(c, "notes", {"trip_id": n, "n": 1})', "answers is used"),
    ('insert_row(c, "notes", {"trip_id": n, "n": 1, "memo": "x"})', "says the type of"),
    ('insert_row(c, "notes", {"trip_id": n, "text": "x"})', "no number"),
    ('insert_row(c, "notes", {"n": n, "text": "x"})', "no id of its parent"),
    (f'c.execute("{INSERT}, (1, 2, 3)", (n, at, value))', "come from Postgres"),
    (f'c.execute("{INSERT} RETURNING n", (n, at, value))', "come from Postgres"),
    ('c.execute("INSERT INTO notes VALUES (%s, %s, %s)", (n, at, value))', "come from Postgres"),
    ('c.execute("INSERT INTO notes (trip_id, n) SELECT id, 1 FROM trips")', "come from Postgres"),
    ('c.execute("INSERT INTO notes (trip_id, n, text) VALUES (%s, 1, now())", (n,))', "Postgres computes"),
    (f'c.execute("{INSERT} ON CONFLICT DO NOTHING", (n, at, value))', "Postgres decides"),
    (f'c.execute("{INSERT} ON CONFLICT (n) DO NOTHING", (n, at, value))', "Postgres decides"),
    (
        f"c.execute(\"{INSERT} ON CONFLICT (trip_id, n) DO UPDATE SET text = 'x'\", (n, at, value))",
        "Postgres computes",
    ),
    (
        f'c.execute("{INSERT} {OVER} WHERE notes.n > 1", (n, at, value))',
        "Postgres decides",
    ),
    (f'c.execute("{ONLY_KEY} ON CONFLICT (trip_id, n) DO UPDATE SET text = EXCLUDED.text", (n,))', "Postgres computes"),
    (f'c.execute("{INSERT}", (elsewhere.key(), n, elsewhere.value()))\n    print(n)', "goes on after it"),
]


@pytest.mark.parametrize(("code", "reason"), LEFT)
def test_what_is_nearly_so_stays_and_says_why(tmp_path: Path, code: str, reason: str) -> None:
    found = rewritten(tmp_path, UNIT + code)

    assert "rewritten." not in "".join(file.after for file in found.changed)
    said = [each.reason for each in found.uses if each.verdict is RewriteVerdict.LEFT]
    assert any(reason in each for each in said) or not reason, said


FUNCTIONS = [  # each does something else than to insert what it is given
    ("list(row.values())", "[str(value) for value in row.values()]"),
    ("list(row.values())", "sorted(row.values())"),
    ("cursor.execute(statement, list(row.values()))", "cursor.execute(statement, list(row.values()))\n    print(row)"),
    ("map(sql.Identifier, row)", "map(sql.Identifier, sorted(row))"),
    ("INSERT INTO {table}", "INSERT INTO old.{table}"),
    ("def insert_row(cursor", "@contextmanager\ndef insert_row(cursor"),
    ("from psycopg2 import sql", "from .elsewhere import sql"),
]


@pytest.mark.parametrize(("old", "new"), FUNCTIONS)
def test_a_function_that_does_anything_else_is_not_looked_through(tmp_path: Path, old: str, new: str) -> None:
    head = dedent(HEAD).replace("cursor_of_unit, ", "cursor_of_unit, fetch_value, fill, insert_row, ")
    folder = write_service(
        tmp_path, head + indent(UNIT + 'insert_row(c, "notes", {"trip_id": n, "n": 1})', "    ") + "\n"
    )
    assert rewrite_service(folder).count(RewriteVerdict.REWRITTEN) == 1  # but for this
    assert old in DB
    (folder / "rewritten_billing" / "db.py").write_text(dedent(DB).replace(old, new))

    assert rewrite_service(folder).count(RewriteVerdict.REWRITTEN) == 0


FILLS = [
    ("fill(trip, {'status': 'x', 'distance': value})", ""),
    ("fill(trip, value)", "run time only"),
    ("fill(trip, {'status': 'x', **value})", "run time only"),
    ("fill(trip, {'status': 'x', 'memo': 'x'})", "not mapped"),
    ("fill(trip, {'status': 'x', 'surprise': 'x'})", "no column"),
    ("x = fill(trip, {'status': 'x'})", "run time only"),
    ("fill(trip, {'status': 'x'})\n    trip.status = 'y'", "changed twice"),
    ("elsewhere.fill(trip, {'status': 'x'})", "handed on"),
    ("changing(trip)", "handed on"),
]


@pytest.mark.parametrize(("statement", "reason"), FILLS)
def test_a_function_that_sets_attributes_is_looked_through_if_they_are_named(
    tmp_path: Path, statement: str, reason: str
) -> None:
    code = f"with factory.begin() as s:\n    trip = s.get(Trip, n)\n    {statement}"

    found = rewritten(tmp_path, code)

    said = [each.reason for each in found.uses if each.verdict is RewriteVerdict.LEFT]
    done = '{"status": \'x\', "distance": rewritten.float_value(value)}'
    assert (done in "".join(file.after for file in found.changed)) is not bool(reason)
    assert not reason or any(reason in each for each in said), said


def test_a_constant_goes_if_no_other_file_can_mean_it(tmp_path: Path) -> None:
    """Other files have the word, and one has the module's name as well."""
    head = dedent(HEAD).replace("TIP = ", f'NEW = "{INSERT}"\nTIP = ')
    folder = write_service(tmp_path, head + indent(UNIT + "c.execute(NEW, (n, at, value))", "    ") + "\n")
    other = folder / "rewritten_billing" / "other.py"
    other.write_text("import os\n\nNEW = 7\n")
    [gone] = [each.after for each in rewrite_service(folder).changed]
    other.write_text("from .service import NEW\n")
    [kept] = [each.after for each in rewrite_service(folder).changed]

    assert "NEW = " not in gone
    assert "NEW = " in kept
