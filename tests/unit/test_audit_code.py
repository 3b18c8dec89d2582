"""`audit code` finds each way of use once, and none of what only looks like one."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import dedent

import pytest

from tripstore.audit import Access, CodeAudit, Kind, LegacyTables, audit_code
from tripstore.audit.modules import Modules
from tripstore.audit.uses import Uses

TABLES = ("trips", "billing_attempts", "public.trip_notes")

#: The models of a small company: three of legacy tables, one beside them.
MODELS = """
from sqlalchemy import Column, ForeignKey, Integer, Table
from sqlalchemy.orm import declarative_base, relationship

Base = declarative_base()


class Trip(Base):
    __tablename__ = "trips"
    id = Column(Integer, primary_key=True)
    driver_id = Column(ForeignKey("drivers.id"))
    driver = relationship("Driver", backref="trips")
    notes = relationship("Note")


class Note(Base):
    __tablename__ = "trip_notes"
    trip_id = Column(ForeignKey("trips.id"))


class Driver(Base):
    __tablename__ = "drivers"
    id = Column(Integer, primary_key=True)


attempts = Table("billing_attempts", Base.metadata, Column("trip_id", ForeignKey("trips.id")))
"""
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

Expected = list[tuple[str, str, str]]


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(dedent(text))
    return folder


def audit(folder: Path, files: dict[str, str], *exclude: str) -> CodeAudit:
    return audit_code(write(folder, files), LegacyTables.parse(TABLES), exclude)


def found(result: CodeAudit) -> Expected:
    assert not result.unread
    return [(finding.kind.value, str(finding.table), finding.access.value[0]) for finding in result.uses]


def of_code(folder: Path, code: str) -> Expected:
    """The uses of lines in a function that knows the models under all their names."""
    body = "".join(f"    {line}\n" for line in dedent(code).strip().splitlines())
    return found(audit(folder, {"app/__init__.py": "", "app/models.py": MODELS, "app/service.py": HEAD + body}))


QUERY, GET, NEW, INSTANCE = "orm.query", "orm.get", "orm.new", "orm.instance"

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


# ------------------------------------------------------------------------------------------------ models


@pytest.mark.parametrize(
    "definition",
    [
        "class Trip(Base):\n    __tablename__ = 'trips'",
        "class Trip(Base):\n    __table__ = Table('trips', Base.metadata)",
        "TABLE = 'trips'\nclass Trip(Base):\n    __tablename__ = TABLE",
        "class Mixin:\n    __tablename__ = 'trips'\nclass Trip(Mixin, Base):\n    pass",
        "class Old(Base):\n    __tablename__ = 'trips'\nclass Trip(Old):\n    __mapper_args__ = {}",
        "class Old(Base):\n    __tablename__ = 'trips'\nclass Trip(Old):\n    __tablename__ = 'premium_trips'",
        "class Trip(Base):\n    @declared_attr\n    def __tablename__(cls):\n        return 'trips'",
        "class trips(SQLModel, table=True):\n    pass\nTrip = trips",
        "try:\n    import x\nexcept ImportError:\n    class Trip(Base):\n        __tablename__ = 'trips'",
        "class Trip:\n    pass\ntable = Table('trips', metadata)\nmapper_registry.map_imperatively(Trip, table)",
        "class Trip(Base):\n    __tablename__ = 'trips'\n    __table_args__ = (1, {'schema': 'public'})",
        "trips = Table('trips', metadata)\nTrip = trips",
        "from .elsewhere import *",
        "from .elsewhere import Trip",
        "from . import elsewhere\nTrip = elsewhere.Trip",
    ],
)
def test_a_model_is_found_however_it_is_defined(tmp_path: Path, definition: str) -> None:
    files = {
        "app/__init__.py": "",
        "app/models.py": definition,
        "app/elsewhere.py": "class Trip(Base):\n    __tablename__ = 'trips'\n",
        "app/service.py": "from app.models import Trip\n\ndef use(session):\n    session.query(Trip)\n",
    }

    assert (QUERY, "trips", "r") in found(audit(tmp_path, files))


@pytest.mark.parametrize(
    ("place", "imported"),
    [
        ("app/models.py", "from app.models import Trip"),
        ("app/models/__init__.py", "from app.models import Trip"),
        ("src/app/models.py", "from app.models import Trip"),
        ("app/models.py", "from .models import Trip"),
        ("app/deep/models.py", "from .deep.models import Trip"),
        ("models.py", "from ..models import Trip"),
        ("company/app/models.py", "from company.app import models\nTrip = models.Trip"),
        ("app/models.py", "import app.models\nTrip = app.models.Trip"),
        ("app/models.py", "def late():\n    global Trip\nfrom app.models import Trip"),
    ],
)
def test_a_model_is_found_wherever_it_is_imported_from(tmp_path: Path, place: str, imported: str) -> None:
    service = f"{imported}\n\ndef use(session):\n    session.query(Trip)\n"

    result = audit(tmp_path, {place: "class Trip(Base):\n    __tablename__ = 'trips'\n", "app/service.py": service})

    assert (QUERY, "trips", "r") in found(result)


def test_of_two_models_of_one_name_the_nearest_is_meant(tmp_path: Path) -> None:
    service = "from app.models import Trip\n\ndef use(session):\n    session.query(Trip)\n"
    files = {
        "old/app/models.py": "class Trip(Base):\n    __tablename__ = 'trips'\n",
        "old/app/service.py": service,
        "new/app/models.py": "class Trip(Base):\n    __tablename__ = 'journeys'\n",
        "new/app/service.py": service,
    }

    assert [finding.file for finding in audit(tmp_path, files).uses] == ["old/app/service.py"]


def test_a_package_that_is_looked_at_by_itself_knows_its_own_name(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"app/__init__.py": "", "app/models.py": MODELS, "app/deep/a.py": "from app.models import Trip\nTrip()"},
    )

    assert found(audit_code(tmp_path / "app", LegacyTables.parse(TABLES))) == [(NEW, "trips", "w")]


def test_methods_of_a_model_use_it_by_cls_and_self(tmp_path: Path) -> None:
    model = """
    class Trip(Base):
        __tablename__ = "trips"

        @classmethod
        def find(cls, session):
            return session.query(cls).all()

        def finish(self):
            self.status = "done"

        @staticmethod
        def other(session):
            return session.query(session)
    """

    assert found(audit(tmp_path, {"m.py": model})) == [(QUERY, "trips", "r"), (INSTANCE, "trips", "w")]


def test_a_relationship_of_another_table_is_a_use_and_one_of_a_legacy_model_is_its_definition(tmp_path: Path) -> None:
    models = MODELS + dedent(
        """
        class Rider(Base):
            __tablename__ = "riders"
            trips = relationship("Trip")
            last: Mapped["Trip"] = relationship(back_populates="rider")
            first_id = Column(ForeignKey("trips.id"))
        """
    )

    result = audit(tmp_path, {"models.py": models})

    related = ("orm.relationship", "trips", "r")
    assert found(result) == [related, related, ("foreign_key", "trips", "r")]
    assert [(each.name, str(each.table)) for each in result.definitions] == [
        ("Trip", "trips"),
        ("Note", "trip_notes"),
        ("attempts", "billing_attempts"),
    ]


def test_what_a_function_of_another_module_returns_is_known_by_its_annotation(tmp_path: Path) -> None:
    files = {
        "models.py": MODELS,
        "repository.py": "from models import Trip\n\ndef load() -> Trip | None:\n    ...\n",
        "service.py": "from repository import load\n\ndef use():\n    row = load()\n    row.fare = 1\n",
    }

    assert ("service.py", 5, Kind.INSTANCE) in [(f.file, f.line, f.kind) for f in audit(tmp_path, files).uses]


def test_the_name_of_a_table_is_a_use_when_it_is_handed_to_code_that_is_looked_at(tmp_path: Path) -> None:
    service = """
    import elsewhere
    from helpers import TABLE, insert_row, Writer

    class Service:
        def use(self, cursor, writer: Writer, rows):
            insert_row(cursor, "trips", {})
            writer.write(table="public.trip_notes")
            self.forget(TABLE)
            elsewhere.show("trips")
            rows.get("trips")
    """
    helpers = "TABLE = 'trips'\n\ndef insert_row(cursor, table, row): ...\n\nclass Writer:\n    pass\n"

    assert found(audit(tmp_path, {"helpers.py": helpers, "service.py": service})) == [
        ("name", "trips", "u"),
        ("name", "trip_notes", "u"),
        ("name", "trips", "u"),
    ]


def test_each_statement_in_the_body_of_a_function_is_a_use(tmp_path: Path) -> None:
    body = "DO $$ BEGIN\n  UPDATE trips SET a = 1;\n  UPDATE trips SET b = 1;\nEND $$;\nDELETE FROM trips;\n"

    assert [f.line for f in audit(tmp_path, {"a.sql": body, "b.py": f"run({body!r})"}).uses] == [2, 3, 5, 1, 1, 1]


def test_a_function_of_a_type_variable_returns_what_it_is_given(tmp_path: Path) -> None:
    files = {
        "models.py": MODELS,
        "present.py": "F = TypeVar('F')\n\ndef present(found: F | None) -> F:\n    ...\n",
        "service.py": """
        from models import Trip
        from present import present

        def use(session):
            present(session.get(Trip, 1)).fare = 1
        """,
    }

    assert found(audit(tmp_path, files)) == [(GET, "trips", "r"), (INSTANCE, "trips", "w")][::-1]


def test_modules_that_import_each_other_and_names_that_define_each_other_end(tmp_path: Path) -> None:
    files = {
        "a.py": "from b import *\nfrom b import one as two\nx = y\ny = x\nclass C(D): pass\nclass D(C): pass\n",
        "b.py": "from a import *\nfrom a import two as one\nclass E(E): __tablename__ = 'trips'\nE()\n",
    }

    assert found(audit(tmp_path, files)) == [(NEW, "trips", "w")]


# ------------------------------------------------------------------------------------------------ places


def test_a_finding_names_line_and_column_and_shows_the_line(tmp_path: Path) -> None:
    code = 'é = "ü"; x = run("""\n  SELECT id -- trips\n    FROM public.trips\n""", "trips")\n'
    code += 'y = "SELECT 1\\nFROM trips"\n'

    result = audit(tmp_path, {"a.py": code, "b.sql": "SELECT 1;\r\n\r\nDELETE\n  FROM trips;\n"})

    assert [(f.file, f.line, f.column, f.excerpt) for f in result.uses] == [
        ("a.py", 3, 17, "FROM public.trips"),
        ("a.py", 5, 21, 'y = "SELECT 1\\nFROM trips"'),
        ("b.sql", 4, 8, "FROM trips;"),
    ]


def test_the_order_is_that_of_files_and_lines_whatever_the_disk_says(tmp_path: Path) -> None:
    names = [f"{letter}/{number}.py" for letter in "cab" for number in (2, 1)]
    result = audit(tmp_path, dict.fromkeys(names, "x('SELECT 1 FROM trips'); x('DELETE FROM trips')\n" * 2))

    places = [(f.file, f.line, f.column) for f in result.found]
    assert places == sorted(places)
    assert len(places) == 24
    assert result == audit_code(tmp_path, LegacyTables.parse(TABLES))


# ---------------------------------------------------------------------------------------------- comments


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "run('DELETE FROM trips')  # tripstore: allow the weekly clean-up goes last"),
        ("a.py", "# tripstore: allow the weekly clean-up goes last\n\n# and this\nrun('DELETE FROM trips')"),
        ("a.py", "run(\n    'DELETE FROM trips',  # tripstore: allow the weekly clean-up goes last\n    1,\n)"),
        ("a.py", "run('''\n    DELETE FROM trips -- tripstore: allow the weekly clean-up goes last\n''')"),
        ("a.sql", "DELETE FROM trips; -- tripstore: allow the weekly clean-up goes last"),
        ("a.sql", "-- tripstore: allow the weekly clean-up goes last\nDELETE FROM trips;"),
        ("a.sql", "SELECT 1;\n/* tripstore: allow the weekly clean-up goes last */ DELETE FROM trips"),
    ],
)
def test_a_comment_with_a_reason_allows_a_use_which_is_counted_apart(tmp_path: Path, name: str, text: str) -> None:
    result = audit(tmp_path, {name: text})

    assert result.uses == ()
    assert [(f.kind, f.allowed) for f in result.allowed] == [(Kind.SQL_DELETE, "the weekly clean-up goes last")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "run('DELETE FROM trips')\nother()  # tripstore: allow another line"),
        ("a.py", "if run('DELETE FROM trips'):\n    other()  # tripstore: allow a line inside"),
        ("a.py", "run('DELETE FROM trips', '# tripstore: allow a text')"),
        ("a.sql", "DELETE FROM trips;\nSELECT 1; -- tripstore: allow another statement"),
        ("a.sql", "SELECT 1; -- tripstore: allow the one before\nDELETE FROM trips;"),
    ],
)
def test_a_comment_allows_nothing_elsewhere(tmp_path: Path, name: str, text: str) -> None:
    assert [f.kind for f in audit(tmp_path, {name: text}).uses] == [Kind.SQL_DELETE]


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.py", "run('DELETE FROM trips')  # tripstore: allow"), ("a.sql", "DELETE FROM trips -- tripstore: allow")],
)
def test_a_comment_without_a_reason_allows_nothing_and_is_said(tmp_path: Path, name: str, text: str) -> None:
    result = audit(tmp_path, {name: text})

    assert len(result.uses) == 1
    assert [(r.file, r.line) for r in result.unclear] == [(name, 1)]


# ------------------------------------------------------------------------------------------------- files


def test_files_that_cannot_be_read_are_listed_and_the_others_are_looked_at(tmp_path: Path) -> None:
    write(tmp_path, {"good.py": "run('DELETE FROM trips')", "bad.py": "def (:\n", "old.py": "print 'trips'\n"})
    (tmp_path / "bytes.py").write_bytes(b"# -*- coding: utf-8 -*-\nx = '\xff trips'\n")
    (tmp_path / "null.py").write_bytes(b"x = 1\0\n")
    (tmp_path / "cookie.py").write_bytes(b"# -*- coding: klingon -*-\n")
    (tmp_path / "deep.py").write_text("x = 'trips' + " + " + ".join(["'a'"] * 3000) + "\n")
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")

    result = audit_code(tmp_path, LegacyTables.parse(TABLES))

    unread = {remark.file: remark for remark in result.unread}
    assert set(unread) == {"bad.py", "old.py", "bytes.py", "null.py", "cookie.py", "deep.py", "gone.py"}
    assert (unread["bad.py"].line, unread["old.py"].line) == (1, 1)
    assert all(remark.reason for remark in result.unread)
    assert not result.is_complete
    assert [f.file for f in result.uses] == ["good.py"]


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ("# -*- coding: latin-1 -*-\nx = 'SELECT é FROM trips'\n".encode("latin-1"), "a.py"),
        ("\ufeffx = 'SELECT é FROM trips'\n".encode(), "a.py"),
        ("x = 1\r\ny = 'SELECT é FROM trips'\r\n".encode(), "a.py"),
        ("\n\n-- é\nSELECT é FROM trips".encode("latin-1"), "a.sql"),
        ("\nSELECT é FROM trips".encode("utf-16"), "a.sql"),
        ("\nSELECT é FROM trips".encode("utf-8-sig"), "a.sql"),
    ],
)
def test_encodings_are_respected(tmp_path: Path, data: bytes, name: str) -> None:
    (tmp_path / name).write_bytes(data)

    [finding] = audit_code(tmp_path, LegacyTables.parse(TABLES)).uses

    assert (
        finding.line
        == data.decode("latin-1").replace("\0", "").count("\n", 0, data.replace(b"\0", b"").find(b"FROM")) + 1
    )


def test_what_others_wrote_is_skipped_and_links_are_followed_once(tmp_path: Path) -> None:
    use = "run('DELETE FROM trips')"
    skipped = [".venv/a.py", "venv/lib/a.py", "node_modules/a.py", ".git/a.py", "__pycache__/a.py", "notes.txt"]
    write(tmp_path, dict.fromkeys([*(f"code/{name}" for name in skipped), "code/a.py", "shared/b.py"], use))
    write(tmp_path, {"code/venv/pyvenv.cfg": ""})
    code = tmp_path / "code"
    (code / "loop").symlink_to(code)
    (code / "up").symlink_to(tmp_path)
    (code / "again.py").symlink_to(code / "a.py")
    (code / "one").symlink_to(tmp_path / "shared")
    (code / "two").symlink_to(tmp_path / "shared")
    os.mkfifo(code / "pipe.py")

    result = audit_code(code, LegacyTables.parse(TABLES))

    assert [f.file for f in result.uses] == ["a.py", "one/b.py"]
    assert result.is_complete


@pytest.mark.parametrize(
    ("exclude", "left"),
    [
        ((), ["a/c/x.py", "a/x.py", "b/y.sql"]),
        (("c",), ["a/x.py", "b/y.sql"]),
        (("a/*",), ["b/y.sql"]),
        (("*.sql", "a/c/"), ["a/x.py"]),
        (("x.py",), ["b/y.sql"]),
    ],
)
def test_excluded_files_and_folders_are_not_looked_at(
    tmp_path: Path, exclude: tuple[str, ...], left: list[str]
) -> None:
    files = {
        "a/c/x.py": "run('DELETE FROM trips')",
        "a/x.py": "run('DELETE FROM trips')",
        "b/y.sql": "DELETE FROM trips",
    }

    assert [f.file for f in audit(tmp_path, files, *exclude).uses] == left


def test_a_single_file_can_be_looked_at(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "run('DELETE FROM trips')", "b.py": "run('DELETE FROM trips')"})

    result = audit_code(tmp_path / "a.py", LegacyTables.parse(TABLES))

    assert [f.file for f in result.uses] == ["a.py"]


def test_nothing_of_the_audited_code_runs(tmp_path: Path) -> None:
    audit(tmp_path, {"a.py": f"open({str(tmp_path / 'ran')!r}, 'w'); run('DELETE FROM trips')"})

    assert not (tmp_path / "ran").exists()


# --------------------------------------------------------------------------------------- what is not known


@pytest.mark.parametrize(
    "code",
    [
        "def use(table):\n    run(f'DELETE FROM {table}')",
        "def use(table):\n    run('SELECT id FROM %s' % table)",
        "def use(table):\n    cursor.execute('SELECT id FROM ' + table)",
        "class Base:\n    @declared_attr\n    def __tablename__(cls):\n        return cls.__name__.lower()",
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
    ("_mention", "session.query(Trip)"),
    ("_text", "cursor.execute('SELECT id FROM trips')"),
    ("_instances", "trip = session.get(Trip, 1)\nsession.delete(trip)"),
    ("_assigned", "trip = session.get(Trip, 1)\ntrip.fare = 2"),
    ("_related", "driver = session.get(Driver, 1)\nprint(driver.trips)"),
    ("_call", "cursor.copy_from(file, 'trips')"),
    ("_annotation", "def inner(trip: Trip): pass"),
    ("_names", "use('trips', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)"),
]


@pytest.mark.parametrize(("part", "code"), PARTS)
def test_control_without_any_part_of_the_audit_a_use_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, code: str
) -> None:
    whole = of_code(tmp_path, code)
    monkeypatch.setattr(Uses, part, lambda *_arguments: False)

    assert len(of_code(tmp_path, code)) < len(whole)


def test_control_without_following_imports_the_uses_of_other_modules_are_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Modules, "find", lambda *_arguments: None)

    assert of_code(tmp_path, "session.query(Trip)") == []
