"""A small service in SQLAlchemy and SQL, as it stood, and as `audit rewrite` leaves it: both can be called."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

from schemaless_core.definitions.index import IndexDefinition
from tests.legacy import TABLES, layout
from tripstore.audit.rewrite.rewriting import rewrite_code
from tripstore.audit.rewrite.verdicts import CodeRewrite, RewriteAssumption
from tripstore.audit.rewrite.wishes import RewriteWishes

PACKAGE = "rewritten_billing"
#: A model says a scale, so the table has it.
SCALED = TABLES.replace("fare numeric", "fare numeric(12, 2)")
INDEXES: list[dict[str, Any]] = [
    {
        "table": "status_index",
        "column_defs": [
            {
                "column_key": "BASE",
                "fields": [
                    {"field": "status", "type": "string"},
                    {"field": "request_at", "type": "datetime"},
                    {"field": "fare", "type": "decimal"},
                ],
            }
        ],
    },
    {
        "table": "driver_index",
        "column_defs": [{"column_key": "BASE", "fields": [{"field": "driver_uuid", "type": "UUID"}]}],
    },
]

MODELS = """
import datetime
from decimal import Decimal

from sqlalchemy import BigInteger, DateTime, Double, ForeignKey, Integer, Numeric, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

Money = Numeric(12, 2)


class Base(DeclarativeBase):
    pass


class Trip(Base):
    __tablename__ = "trips"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    driver_id: Mapped[int | None] = mapped_column(Integer)
    status: Mapped[str | None] = mapped_column(Text)
    fare: Mapped[Decimal | None] = mapped_column(Money)
    distance: Mapped[float | None] = mapped_column(Double)
    requested: Mapped[datetime.datetime] = mapped_column("request_at", DateTime(timezone=True))
    memo: Mapped[str | None] = mapped_column(Text)
    notes: Mapped[list["Note"]] = relationship(cascade="all, delete-orphan", order_by="Note.n")


class Note(Base):
    __tablename__ = "notes"
    trip_id: Mapped[int] = mapped_column(ForeignKey("trips.id"), primary_key=True)
    n: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    text: Mapped[str | None] = mapped_column(Text)


def new_note(n, text):
    return {"n": n, "text": text}
"""

DB = """
from contextlib import contextmanager

import psycopg2
from psycopg2 import sql
from sqlalchemy import create_engine
from sqlalchemy.orm import sessionmaker
from sqlalchemy.pool import NullPool

engine = create_engine("postgresql+psycopg2://nowhere")
factory = sessionmaker(engine)
url = ""


def connect(to):
    global url
    url = to
    factory.configure(bind=create_engine(to.replace("postgresql:", "postgresql+psycopg2:"), poolclass=NullPool))


@contextmanager
def cursor_of_unit():
    connection = psycopg2.connect(url)
    try:
        with connection, connection.cursor() as cursor:
            yield cursor
    finally:
        connection.close()


INSERT = sql.SQL("INSERT INTO {table} ({columns}) VALUES ({values}) {tail}")


def insert_row(cursor, table, row, tail=""):
    '''One row; what follows its values is the tail.'''
    statement = INSERT.format(
        table=sql.Identifier(table),
        columns=sql.SQL(", ").join(map(sql.Identifier, row)),
        values=sql.SQL(", ").join(sql.Placeholder() * len(row)),
        tail=sql.SQL(tail),
    )
    cursor.execute(statement, list(row.values()))


def fetch_value(cursor, statement, values):
    cursor.execute(statement, values)
    row = cursor.fetchone()
    return row[0] if row else None


def fill(thing, values):
    for name, value in values.items():
        setattr(thing, name, value)


@contextmanager
def session_at(level):
    with factory() as session:
        session.connection(execution_options={"isolation_level": level})
        yield session
        session.commit()
"""

#: Each function reads or writes in a way of its own. What it returns is compared.
SERVICE = '''
"""Bills trips."""
from __future__ import annotations

from decimal import Decimal

from sqlalchemy import and_, select, update
from sqlalchemy.exc import MultipleResultsFound, NoResultFound

from .db import cursor_of_unit, factory, fetch_value, fill, insert_row, session_at
from .models import Note, Trip, new_note

TIP = "UPDATE trips SET fare = %s, status = 'tipped' WHERE id = %s"
NEW_NOTE = "INSERT INTO notes (trip_id, n, text) VALUES (%s, %s, %s)"
LAST = "SELECT coalesce(max(n), 0) FROM notes WHERE trip_id = %s"
OVER = "ON CONFLICT (trip_id, n) DO UPDATE SET text = EXCLUDED.text"


def fare_of(trip_id):
    with factory() as session:
        trip = session.get(Trip, trip_id)
        if trip is None:
            return "no trip"
        return trip.id, trip.status, trip.fare, trip.distance, trip.requested  # all of them


def is_there(trip_id):
    with factory() as session:
        return session.get(Trip, trip_id) is not None


def has_all_null(trip_id):
    with factory() as session:
        trip = session.scalars(select(Trip).where(Trip.id == trip_id)).one_or_none()
        return "there" if trip else "gone"


def status_of(trip_id):
    with factory() as session:
        return session.scalar(select(Trip.status).filter_by(id=trip_id))


def fare_by_query(trip_id):
    with factory() as session:
        trip = session.query(Trip).filter(trip_id == Trip.id).first()
        return trip and trip.fare


def note_of(trip_id, n):
    with factory() as session:
        note = session.get(Note, (trip_id, n))
        return None if note is None else (note.n, note.text)


def with_status(status):
    with factory() as session:
        return sorted(trip.id for trip in session.scalars(select(Trip).where(Trip.status == status)))


def latest_with_status(status, count):
    with factory() as session:
        trips = session.query(Trip).filter_by(status=status).order_by(Trip.requested.desc()).limit(count).all()
        return len(trips), [trip.id for trip in trips]


def dear_with_status(status, least, since, until):
    found = []
    with factory() as session:
        for trip in session.scalars(
            select(Trip)
            .where(and_(Trip.status == status, Trip.fare >= least))
            .where(Trip.requested.between(since, until))
            .order_by(Trip.requested)
        ):
            found.append((trip.id, trip.fare))
    return found


def first_of_driver(driver_id):
    with factory() as session:
        trip = session.scalars(select(Trip).where(Trip.driver_id == driver_id)).first()
        return trip is not None


def trips_of_driver(driver_id):
    with factory() as session:
        return sorted(trip.id for trip in session.query(Trip).filter(Trip.driver_id == driver_id))


def fetched(trip_id):
    with cursor_of_unit() as cursor:
        cursor.execute("SELECT id, status, fare, distance, request_at FROM trips WHERE id = %s", (trip_id,))
        return cursor.fetchone()


def fares_with_status(status):
    with factory() as session:
        return sorted(map(str, session.scalars(select(Trip.fare).where(Trip.status == status)).all()))


def ids_with_status(status):
    with factory() as session:
        return sorted(session.scalars(select(Trip.id).where(Trip.status == status)))


def count_with_status(status):
    with factory() as session:
        return session.query(Trip).filter(Trip.status == status).count()


def same_id(trip_id):
    with factory() as session:
        return session.scalar(select(Trip.id).where(Trip.id == trip_id))


def needed_status(trip_id):
    with factory() as session:
        try:
            trip = session.query(Trip).filter(Trip.id == trip_id).one()
        except NoResultFound as error:
            return str(error)
        return trip.status


def note_after(trip_id, n):
    with factory() as session:
        trip = session.get(Trip, trip_id)
        return trip is not None and session.get(Note, (trip.id, n)) is not None


def complete(trip_id, fare):
    with factory.begin() as session:
        trip = session.get(Trip, trip_id)
        if trip is None:
            return "no trip"
        trip.status = "completed"
        trip.fare = (trip.fare or Decimal(0)) + fare


def move(trip_id, at, driver_id):
    with factory() as session:
        session.execute(update(Trip).where(Trip.id == trip_id).values(requested=at, driver_id=driver_id, distance=None))
        session.commit()


def forget(trip_id):
    with factory.begin() as session:
        session.query(Trip).filter(Trip.id == trip_id).update({Trip.status: None, "fare": None})


def tip(trip_id, fare):
    with cursor_of_unit() as cursor:
        cursor.execute(TIP, (fare, trip_id))


def edit_note(trip_id, n, text):
    with factory.begin() as session:
        note = session.scalars(select(Note).where(Note.trip_id == trip_id, Note.n == n)).one_or_none()
        if note is not None:
            note.text = text


def edit_note_by_sql(trip_id, n, text):
    with cursor_of_unit() as cursor:
        cursor.execute(
            "UPDATE notes SET text = %(text)s WHERE trip_id = %(trip)s AND n = %(n)s",
            {"text": text, "trip": trip_id, "n": n},
        )


def add_to_fare(trip_id, more):
    with factory.begin() as session:
        session.execute(update(Trip).where(Trip.id == trip_id).values(fare=Trip.fare + more))


def add_to_note(trip_id, n, more):
    with cursor_of_unit() as cursor:
        cursor.execute("UPDATE notes SET text = text || %s WHERE trip_id = %s AND n = %s", (more, trip_id, n))


def remove_note(key):
    with cursor_of_unit() as cursor:
        cursor.execute("DELETE FROM notes WHERE trip_id = %s AND n = %s", key)


def drop_note(trip_id, n):
    with factory.begin() as session:
        note = session.get(Note, (trip_id, n))
        if note is not None:
            session.delete(note)


def note_the_status(trip_id, n):
    with factory.begin() as session:
        trip = session.get(Trip, trip_id)
        note = session.get(Note, (trip_id, n))
        note.text = trip.status
        trip.status = "noted"


def tip_all(ids, fare):
    with cursor_of_unit() as cursor:
        for trip_id in ids:
            cursor.execute("UPDATE trips SET fare = %s WHERE id = %s", (fare, trip_id))


def raise_fare(trip_id, more, meanwhile=print):
    with session_at("REPEATABLE READ") as session:
        trip = session.get(Trip, trip_id)
        meanwhile()
        trip.fare = (trip.fare or Decimal(0)) + more


def notes_of(trip_id):
    with factory() as session:
        trip = _found(session, trip_id)
        if trip is None or not trip.notes:
            return "no notes"
        return len(trip.notes), [(note.n, note.text) for note in trip.notes]


def append_note(trip_id, text):
    with factory.begin() as session:
        trip = _found(session, trip_id)
        if trip is not None:
            trip.notes.append(Note(n=max((note.n for note in trip.notes), default=0) + 1, text=text))


def append_made_note(trip_id, n, text):
    with factory.begin() as session:
        trip = _found(session, trip_id)
        row = {"n": 0} | new_note(n, text)
        trip.notes.append(Note(**row))
        trip.status = f"noted {len(text or '')}"


def take_note(trip_id):
    with factory.begin() as session:
        trip = _found(session, trip_id)
        if trip is not None and trip.notes:
            trip.notes.remove(trip.notes[-1])


def take_first_note(trip_id):
    with factory.begin() as session:
        trip = session.get(Trip, trip_id)
        trip.notes.remove(trip.notes[0])


def put_note(trip_id, n, text):
    with cursor_of_unit() as cursor:
        cursor.execute(NEW_NOTE, (trip_id, n, text))


def put_note_over(trip_id, n, text):
    with cursor_of_unit() as cursor:
        insert_row(cursor, "notes", {"trip_id": trip_id} | new_note(n, text), OVER)


def put_note_unless_there(trip_id, n, text):
    with cursor_of_unit() as cursor:
        cursor.execute(
            "INSERT INTO notes (n, trip_id, text) VALUES (%(n)s, %(trip)s, 'once') ON CONFLICT (n, trip_id) DO NOTHING",
            {"n": n, "trip": trip_id},
        )


def add_note(trip_id, n, text):
    with factory.begin() as session:
        session.add(Note(trip_id=trip_id, n=n, text=text))


def replace_note(trip_id, n, text):
    with cursor_of_unit() as cursor:
        cursor.execute("DELETE FROM notes WHERE trip_id = %s AND n = %s", (trip_id, n))
        insert_row(cursor, "notes", {"trip_id": trip_id, "n": n, "text": text})


def last_and_fare(trip_id):
    with cursor_of_unit() as cursor:
        last = fetch_value(cursor, "SELECT max(n) FROM notes WHERE trip_id = %s", (trip_id,))
        return last, fetch_value(cursor, "SELECT fare FROM trips WHERE id = %s", (trip_id,))


def add_next_note(trip_id, text):
    with cursor_of_unit() as cursor:
        last = fetch_value(cursor, LAST, (trip_id,))
        insert_row(cursor, "notes", {"trip_id": trip_id, "n": last + 1, "text": text})


def fill_trip(trip_id, fare):
    with factory.begin() as session:
        trip = session.get(Trip, trip_id)
        fill(trip, {"status": f"filled {trip.status}", "fare": fare, "distance": None})


def _found(session, trip_id):
    return session.get(Trip, trip_id)


def status_if(trip_id, status):
    with factory() as session:
        trip = session.query(Trip).filter(Trip.status == status, Trip.id == trip_id).first()
        return trip is not None and trip.status


def only_one_with(status):
    with factory() as session:
        try:
            trip = session.scalars(select(Trip).where(Trip.status == status)).one_or_none()
        except MultipleResultsFound:
            return "several"
        return trip and trip.id


def first_there(one_id, other_id):
    with factory() as session:
        trip = None
        if one_id is not None:
            trip = session.get(Trip, one_id)
        if trip is None:
            trip = session.query(Trip).filter(Trip.id == other_id).first()
        return trip and (trip.id, trip.status)


def close_either(one_id, other_id):
    with factory() as session:
        trip = session.get(Trip, one_id)
        if trip is None:
            trip = session.get(Trip, other_id)
        if trip is not None:
            trip.status = f"closed {trip.status}"
            session.add(trip)
            session.commit()


def rename(session, trip_id, status):
    trip = session.get(Trip, trip_id)
    if trip is None:
        return False
    trip.status = status
    session.commit()
    return True
'''
ASSUMED = tuple(RewriteAssumption)


def write_service(folder: Path, service: str = SERVICE) -> Path:
    package = folder / PACKAGE
    package.mkdir(parents=True)
    files = {"__init__": "", "models": MODELS, "db": DB, "service": service, "stores": "store = None\n"}
    for name, text in files.items():
        (package / f"{name}.py").write_text(dedent(text).lstrip())
    return folder


def rewrite_service(folder: Path, assume: tuple[RewriteAssumption, ...] = ASSUMED) -> CodeRewrite:
    definitions = [IndexDefinition.from_document(each, "a test", "trips") for each in INDEXES]
    wishes = RewriteWishes(f"{PACKAGE}.stores:store", ("cursor_of_unit", "session_at"), assume)
    return rewrite_code(folder, layout(), definitions, (), wishes)


@contextmanager
def imported(folder: Path, url: str, store: object = None) -> Iterator[ModuleType]:
    """The service of a folder, connected; forgotten afterwards, so that another one can be imported."""
    sys.path.insert(0, str(folder))
    try:
        importlib.import_module(f"{PACKAGE}.db").connect(url)
        importlib.import_module(f"{PACKAGE}.stores").store = store  # type: ignore[attr-defined]  # a module of the test
        yield importlib.import_module(f"{PACKAGE}.service")
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]
        importlib.invalidate_caches()
