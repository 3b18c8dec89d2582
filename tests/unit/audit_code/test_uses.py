"""`audit code` finds each way of use once, and none of what only looks like one."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.unit.audit_code.services import GET, INSTANCE, MODELS, NEW, QUERY, Expected, audit, found
from tripstore.audit import Access
from tripstore.audit.meaning.modules import Modules
from tripstore.audit.uses.related import RelatedUses
from tripstore.audit.uses.uses import Uses

#: What stands before the code of each case.
HEAD = """
import app.models
from app import models
from app.models import Base, Driver, Note, Trip, attempts
import sqlalchemy as sa
from sqlalchemy import delete, exists, insert, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import aliased, joinedload
from psycopg2 import sql


def use(session, cursor, conn, op, df, pd, rows, city, cols, file, json_value):
"""


def of_code(folder: Path, code: str) -> Expected:
    """The uses of lines in a function that knows the models under all their names."""
    body = "".join(f"    {line}\n" for line in dedent(code).strip().splitlines())
    return found(audit(folder, {"app/__init__.py": "", "app/models.py": MODELS, "app/service.py": HEAD + body}))


ORM: list[tuple[str, Expected]] = [
    ("session.query(Trip).filter(Trip.id == 1).first()", [(QUERY, "trips", "r")]),
    ("session.query(Trip.id, Trip.fare).all()", [(QUERY, "trips", "r")]),
    ("session.query(models.Trip).all()", [(QUERY, "trips", "r")]),
    ("session.query(app.models.Trip).all()", [(QUERY, "trips", "r")]),
    ("session.query(Trip).filter_by(id=1).delete()", [("delete", "trips", "w")]),
    ("session.query(Trip).update({Trip.fare: 1})", [("update", "trips", "w")]),
    ("session.query(Driver).join(Trip).all()", [(QUERY, "trips", "r")]),
    ("session.query(Driver).filter(exists().where(Trip.driver_id == Driver.id)).delete()", [("select", "trips", "r")]),
    ("session.query(Trip).join(Note)", [(QUERY, "trips", "r"), (QUERY, "trip_notes", "r")]),
    ("Trip.query.filter_by(id=1).all()", [(QUERY, "trips", "r")]),
    ("Trip.query.filter_by(id=1).delete()", [("delete", "trips", "w")]),
    ("session.get(Trip, 7)", [(GET, "trips", "r")]),
    ("session.execute(select(Trip).where(Trip.id == 1)).scalars().all()", [("select", "trips", "r")]),
    ("session.scalars(sa.select(Trip.fare))", [("select", "trips", "r")]),
    ("session.execute(select(Driver).where(Driver.id.in_(select(Trip.driver_id))))", [("select", "trips", "r")]),
    ("session.execute(insert(Trip).values(fare=1))", [("insert", "trips", "w")]),
    ("session.execute(upsert(Trip).on_conflict_do_nothing())", [("insert", "trips", "w")]),
    ("session.execute(update(Trip).where(Trip.id == 1).values(fare=1))", [("update", "trips", "w")]),
    ("session.execute(update(Driver).values(n=Trip.fare))", [("select", "trips", "r")]),
    ("session.execute(delete(Trip))", [("delete", "trips", "w")]),
    ("session.bulk_insert_mappings(Trip, rows)", [("orm.bulk", "trips", "w")]),
    ("session.bulk_update_mappings(Trip, rows)", [("orm.bulk", "trips", "w")]),
    ("session.bulk_save_objects([Trip() for row in rows])", [(NEW, "trips", "w"), ("orm.bulk", "trips", "w")][::-1]),
    ("session.add(Trip(fare=1))", [(NEW, "trips", "w")]),
    ("session.merge(Trip(fare=1))", [(NEW, "trips", "w"), (INSTANCE, "trips", "w")][::-1]),
    ("trip = session.get(Trip, 1)\ntrip.fare = 2", [(GET, "trips", "r"), (INSTANCE, "trips", "w")]),
    ("trip = session.get(Trip, 1)\ntrip.fare += 2", [(GET, "trips", "r"), (INSTANCE, "trips", "w")]),
    ("trip = session.get(Trip, 1)\nsession.delete(trip)", [(GET, "trips", "r"), (INSTANCE, "trips", "w")]),
    ("trip = session.get(Trip, 1)\nsetattr(trip, 'fare', 2)", [(GET, "trips", "r"), (INSTANCE, "trips", "w")]),
    (
        "for trip in session.scalars(select(Trip).limit(9)):\n    trip.fare = 2",
        [("select", "trips", "r"), (INSTANCE, "trips", "w")],
    ),
    (
        "stmt = select(Trip)\nif city:\n    stmt = stmt.where(Trip.city == city)\n"
        "found = session.execute(stmt).scalars().first()\nfound.fare = 2",
        [("select", "trips", "r"), ("select", "trips", "r"), (INSTANCE, "trips", "w")],
    ),
    ("query = session.query(Trip)\nquery.filter_by(id=1).delete()", [(QUERY, "trips", "r"), ("delete", "trips", "w")]),
    (
        "query = session.query(Trip)\nquery = query.filter_by(id=1)\nquery.update({'fare': 1})",
        [(QUERY, "trips", "r"), ("update", "trips", "w")],
    ),
    ("if (n := session.get(Trip, 3)):\n    del n.note", [(GET, "trips", "r"), (INSTANCE, "trips", "w")]),
    ("def inner(trip: Trip):\n    trip.fare = 1", [("reference", "trips", "u"), (INSTANCE, "trips", "w")]),
    ("def inner(trips: list['Trip']):\n    trips[0].fare = 1", [("reference", "trips", "u"), (INSTANCE, "trips", "w")]),
    ("T = aliased(Trip)\nsession.query(T)", [("reference", "trips", "u"), (QUERY, "trips", "r")]),
    ("from app.models import Trip as T\nsession.query(T)", [(QUERY, "trips", "r")]),
    ("import app.models as m\nsession.query(m.Trip)", [(QUERY, "trips", "r")]),
    ("session.query(Base.classes.trips)", [(QUERY, "trips", "r")]),
    ("Repository(Trip)", [("reference", "trips", "u")]),
    ("isinstance(city, Trip)", [("reference", "trips", "u")]),
    ("session.query(Driver).options(joinedload(Driver.trips))", [("orm.relationship", "trips", "r")]),
    ("driver = session.get(Driver, 1)\nprint(driver.trips)", [("orm.relationship", "trips", "r")]),
    ("driver = session.get(Driver, 1)\ndriver.trips.append(city)", [("orm.relationship", "trips", "w")]),
    ("trip = session.get(Trip, 1)\nprint(trip.notes)", [(GET, "trips", "r"), ("orm.relationship", "trip_notes", "r")]),
]


CORE: list[tuple[str, Expected]] = [
    ("conn.execute(attempts.insert(), rows)", [("insert", "billing_attempts", "w")]),
    ("conn.execute(attempts.insert().values(n=1))", [("insert", "billing_attempts", "w")]),
    ("conn.execute(insert(attempts), rows)", [("insert", "billing_attempts", "w")]),
    ("conn.execute(attempts.update().where(attempts.c.n == 1))", [("update", "billing_attempts", "w")]),
    ("conn.execute(attempts.delete())", [("delete", "billing_attempts", "w")]),
    ("conn.execute(attempts.select())", [("select", "billing_attempts", "r")]),
    ("conn.execute(select(attempts.c.n).where(attempts.c.n > 1))", [("select", "billing_attempts", "r")]),
    ("conn.execute(select([models.attempts]))", [("select", "billing_attempts", "r")]),
    ("conn.execute(Trip.__table__.delete())", [("delete", "trips", "w")]),
    ("conn.execute(Base.metadata.tables['trips'].insert())", [("insert", "trips", "w")]),
    ("t = sa.Table('trips', city, autoload_with=conn)\nconn.execute(t.insert())", [("insert", "trips", "w")]),
    ("conn.execute(select(sa.table('trips', cols)))", [("select", "trips", "r")]),
    ("op.bulk_insert(attempts, rows)", [("orm.bulk", "billing_attempts", "w")]),
    ("op.add_column('trips', cols)", [("schema", "trips", "w")]),
    ("sa.Column(sa.ForeignKey('trips.id'))", [("foreign_key", "trips", "r")]),
]


STAR, NO_COLUMNS = "sql.select_star", "sql.insert_without_columns"


TEXTS: list[tuple[str, Expected]] = [
    ("session.execute(text('SELECT id FROM trips'))", [("sql.select", "trips", "r")]),
    ("cursor.execute('select * from trips where id = %s', [1])", [(STAR, "trips", "r")]),
    ("cursor.execute(f'SELECT {cols} FROM trips WHERE id = {city}')", [("sql.select", "trips", "r")]),
    ("cursor.execute(f'SELECT {cols} FROM {city}.trips')", [("sql.select", "trips", "r")]),
    ("cursor.execute('SELECT id ' + 'FROM trips')", [("sql.select", "trips", "r")]),
    ("cursor.execute('SELECT %s FROM trips' % cols)", [("sql.select", "trips", "r")]),
    ("cursor.execute('SELECT id FROM {}'.format('trips'))", [("sql.select", "trips", "r")]),
    ("cursor.execute(' '.join(['SELECT id', 'FROM trips']))", [("sql.select", "trips", "r")]),
    ("cursor.execute(sql.SQL('DELETE FROM {}').format(sql.Identifier('trips')))", [("sql.delete", "trips", "w")]),
    ("cursor.execute(f'DELETE FROM {Trip.__tablename__}')", [("sql.delete", "trips", "w")]),
    ("name = 'trips'\ncursor.execute(f'DELETE FROM {name}')", [("sql.delete", "trips", "w")]),
    ("query = '''\n    SELECT t.*\n    FROM trips t\n'''\ncursor.execute(query)", [(STAR, "trips", "r")]),
    (
        "query = 'SELECT id FROM drivers d'\nquery += ' JOIN trips t ON t.driver_id = d.id'",
        [("sql.select", "trips", "r")],
    ),
    ("cursor.execute('INSERT INTO trips VALUES (%s)', [1])", [(NO_COLUMNS, "trips", "w")]),
    ("cursor.execute('INSERT INTO trips (id) VALUES (%s)', [1])", [("sql.insert", "trips", "w")]),
    ("cursor.execute('UPDATE trips SET fare = 1')", [("sql.update", "trips", "w")]),
    ("cursor.execute('TRUNCATE trips')", [("sql.truncate", "trips", "w")]),
    ("cursor.copy_expert('COPY trips FROM STDIN', file)", [("sql.copy_without_columns", "trips", "w")]),
    ("cursor.copy_expert('COPY trips (id) TO STDOUT', file)", [("sql.copy", "trips", "r")]),
    ("cursor.copy_from(file, 'trips')", [("sql.copy_without_columns", "trips", "w")]),
    ("cursor.copy_from(file, 'trips', columns=('id',))", [("sql.copy", "trips", "w")]),
    ("pd.read_sql_table('trips', conn)", [(STAR, "trips", "r")]),
    ("df.to_sql('trips', conn)", [("sql.insert", "trips", "w")]),
    ("op.execute('ALTER TABLE trips ADD COLUMN x int')", [("sql.schema", "trips", "w")]),
]


NEAR_MISSES = [
    "trips = []\ntrips.append(1)\nprint(trips)",
    "trips = {}\ntrips.update({'a': 1})\ndel trips",
    "pass  # SELECT * FROM trips",
    "'''Counts the trips of a city; see billing_attempts. Select the best from trips.'''",
    "print('loading trips from disk')",
    "print('Update trips every hour')",
    "print('notes from trips were lost')",
    "url = '/trips'\nrows['trips'] = city.get('trips')",
    "class Trip:\n    pass\nprint(Trip())",
    "from elsewhere.models import Trip\nsession.query(Trip)",
    "def inner(Trip):\n    return session.query(Trip)",
    "[session.query(Trip) for Trip in rows]",
    "cursor.execute('SELECT id FROM trips_archive')",
    "cursor.execute(f'SELECT id FROM trips_{city}')",
    "cursor.execute('SELECT id FROM other.trip_notes')",
    "cursor.execute('SELECT id FROM drivers WHERE name = \\'FROM trips\\'')",
    "cursor.execute('SELECT id FROM drivers -- FROM trips')",
    "cursor.execute('SELECT trips FROM drivers')",
    "cursor.execute('WITH trips AS (SELECT 1) SELECT * FROM trips')",
    "session.query(Driver).filter(Driver.id == 1).delete()",
    "driver = session.get(Driver, 1)\ndriver.name = 'x'",
    "sa.Table('drivers', city)",
    "sa.Column(sa.ForeignKey('drivers.id'))",
    "rows.trips = city.trips",
]


@pytest.mark.parametrize(
    ("code", "expected"), [*ORM, *CORE, *TEXTS], ids=lambda value: value if isinstance(value, str) else ""
)
def test_each_way_of_use_is_found_once(tmp_path: Path, code: str, expected: Expected) -> None:
    assert of_code(tmp_path, code) == expected


@pytest.mark.parametrize("code", NEAR_MISSES)
def test_what_only_looks_like_a_use_is_none(tmp_path: Path, code: str) -> None:
    assert of_code(tmp_path, code) == []


@pytest.mark.parametrize(
    "code",
    [
        "def use(table):\n    run(f'DELETE FROM {table}')",
        "def use(table):\n    run('SELECT id FROM %s' % table)",
        "def use(table):\n    cursor.execute('SELECT id FROM ' + table)",
        "class Row(db.Model):\n    @declared_attr\n    def __tablename__(cls):\n        return name_of(cls)\n"
        "    id = db.Column()",
    ],
)
def test_a_table_that_is_known_at_run_time_only_is_said_to_be_unclear(tmp_path: Path, code: str) -> None:
    result = audit(tmp_path, {"a.py": code})

    assert result.uses == ()
    assert [remark.file for remark in result.unclear] == ["a.py"]


def test_a_service_in_all_its_uses_is_told_apart_by_access(tmp_path: Path) -> None:
    code = HEAD + "    session.get(Trip, 1)\n    session.execute(delete(Trip))\n    Repository(Trip)\n"

    result = audit(tmp_path, {"app/models.py": MODELS, "app/service.py": code})

    assert [f.access for f in result.uses] == [Access.READ, Access.WRITE, Access.UNKNOWN]


#: The parts of the audit, each with a use that nothing else would find.
PARTS = [
    (Uses, "_mention", "session.query(Trip)"),
    (Uses, "_text", "cursor.execute('SELECT id FROM trips')"),
    (Uses, "_instances", "trip = session.get(Trip, 1)\nsession.delete(trip)"),
    (Uses, "_assigned", "trip = session.get(Trip, 1)\ntrip.fare = 2"),
    (RelatedUses, "look", "driver = session.get(Driver, 1)\nprint(driver.trips)"),
    (Uses, "_call", "cursor.copy_from(file, 'trips')"),
    (Uses, "_annotation", "def inner(trip: Trip): pass"),
    (Uses, "_names", "use('trips', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)"),
]


@pytest.mark.parametrize(("of", "part", "code"), PARTS)
def test_control_without_any_part_of_the_audit_a_use_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: type[Uses | RelatedUses], part: str, code: str
) -> None:
    whole = of_code(tmp_path, code)
    monkeypatch.setattr(of, part, lambda *_arguments: False)

    assert len(of_code(tmp_path, code)) < len(whole)


def test_control_without_following_imports_the_uses_of_other_modules_are_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Modules, "find", lambda *_arguments: None)

    assert of_code(tmp_path, "session.query(Trip)") == []
