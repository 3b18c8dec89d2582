"""Forms that public code has most: one name for several questions, columns of a mixin, truth values, ids as texts."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

import pytest

from schemaless_core.definitions.index import IndexDefinition
from tests.unit.audit_rewrite.forms import added, latest, rewritten
from tripstore.audit.rewrite.rewriting import rewrite_code
from tripstore.audit.rewrite.verdicts import RewriteAssumption, RewriteVerdict
from tripstore.audit.rewrite.wishes import RewriteWishes
from tripstore.backends.postgres.layout.layout import (
    Field,
    FieldType,
    Layout,
    MappedColumn,
    RefKeySource,
    RowKeySource,
    TableName,
)

EITHER = "trip = session.get(Trip, n)\nif trip is None:\n    trip = session.get(Trip, at)\n"
FOUND = f"trip = {latest('n')}\nif trip is None:\n    trip = {latest('at')}\n"
SAVED = "trip.status = 'x'\nsession.add(trip)\nsession.commit()"
CHANGED = "rewritten.change_found(store, trip, {\"status\": 'x'})\nsession.commit()"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (f"{EITHER}return trip.status", f'{FOUND}return trip.get("status")'),
        (f"trip = None\n{EITHER}return trip and trip.id", f"trip = None\n{FOUND}return trip and trip.number"),
        (f"{EITHER}trip.status = 'x'\nsession.commit()", f"{FOUND}{CHANGED}"),
        (
            "print(n)\nn = session.get(Trip, n)\nif n is None:\n    return at\nreturn n.status",
            f'print(n)\nn = {latest("n")}\nif n is None:\n    return at\nreturn n.get("status")',
        ),
        (f"trip = session.get(Trip, n)\n{SAVED}", f"trip = {latest('n')}\n{CHANGED}"),
        (
            "trip = Trip.query.get(n)\ntrip.status = 'x'\nelsewhere.db.session.add(trip)\n"
            "elsewhere.db.session.commit()",
            f"trip = {latest('n')}\nrewritten.change_found(store, trip, {{\"status\": 'x'}})\n"
            "elsewhere.db.session.commit()",
        ),
        (
            "with factory() as s:\n    trip = s.get(Trip, n)\n    s.add(trip)\n    trip.status = 'x'\n    s.commit()",
            f"with factory() as s:\n    trip = {latest('n')}\n"
            "    rewritten.change_found(store, trip, {\"status\": 'x'})\n    s.commit()",
        ),
    ],
)
def test_a_name_of_several_questions_and_an_added_row_are_followed(tmp_path: Path, code: str, expected: str) -> None:
    assert added(rewritten(tmp_path, code)) == expected


SELECT = "found = select(Trip).where(Trip.id == n)\n"
KEPT = [
    (f"{SELECT}trip = session.scalar(found)\nreturn trip.status", f'trip = {latest("n")}\nreturn trip.get("status")'),
    (
        f"{SELECT}trip = session.execute(found).scalar_one_or_none()\nreturn trip.id",
        f"trip = {latest('n')}\nreturn trip.number",
    ),
    (f"{SELECT}if session.scalar(found) is None:\n    return 1", f"if {latest('n')} is None:\n    return 1"),
    (
        "found = (\n    select(Trip.id)\n    .where(Trip.status == n)\n)\nreturn [i for i in session.scalars(found)]",
        'return [i for i in [row.number for row in rewritten.found(store, "status_index", n, column_name="BASE")]]',
    ),
    (
        "with factory.begin() as s:\n    change = update(Trip).where(Trip.id == n).values(status='x')\n"
        "    s.execute(change)",
        'with factory.begin() as s:\n    rewritten.change_of_id(store, n, "BASE", {"status": \'x\'})',
    ),
]


@pytest.mark.parametrize(("code", "expected"), KEPT)
def test_a_statement_goes_with_the_next_one_that_executes_it(tmp_path: Path, code: str, expected: str) -> None:
    found = rewritten(tmp_path, code)

    assert added(found) == expected
    assert {each.verdict for each in found.uses if each.use.line > 20} == {RewriteVerdict.REWRITTEN}


@pytest.mark.parametrize(
    "code",
    [
        f"{SELECT}n = elsewhere.next()\nreturn session.scalar(found) is None",
        f"{SELECT}found = found.limit(1)\nreturn session.scalar(found) is None",
        f"{SELECT}return session.scalar(found) is None and session.scalar(found)",
        f"{SELECT}return value and session.scalar(found) is None",
        f"{SELECT}while session.scalar(found) is None:\n    pass",
        f"{SELECT}return [session.scalar(found) is None for n in value]",
        f"{SELECT}return elsewhere.told(found)",
        f"global found\n{SELECT}return session.scalar(found) is None",
        f"if value:\n    {SELECT}return session.scalar(found) is None",
        "found = (  # of the caller\n    select(Trip).where(Trip.id == n))\nreturn session.scalar(found) is None",
    ],
)
def test_a_statement_that_is_executed_later_or_more_than_once_stays(tmp_path: Path, code: str) -> None:
    found = rewritten(tmp_path, code)

    assert "rewritten." not in "".join(file.after for file in found.changed)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("if at:\n    n = session.get(Trip, n)\nreturn n", "other things"),
        ("for at in value:\n    n = session.get(Trip, n).id\nreturn n", "handed on"),
        ("for at in value:\n    n = session.get(Trip, n)\nreturn n", "other things"),
        ("n = session.get(Trip, n)\nn = n.id\nreturn n", "other things"),
        ("n = session.get(Trip, n)\nreturn n", "handed on"),
        (f"{EITHER}    trip = Trip()\nreturn trip.status", "other things"),
        (f"{EITHER}    trip = session.get(Note, (n, 1))\nreturn trip is None", "other things"),
        ("trip = session.get(Trip, n)\nimport trip\ntrip = None\nreturn trip", "other things"),
        (f"{EITHER}trip.status = 'x'\ntrip = session.get(Trip, n)\nsession.commit()", "another row elsewhere"),
        (
            "with factory.begin() as s:\n    for i in value:\n        trip = s.get(Trip, i)\n"
            "        trip = s.get(Trip, i + 1)\n        trip.status = 'x'",
            "another row elsewhere",
        ),
        ("trip = session.get(Trip, n)\nsession.add(trip)\nsession.commit()", "handed on"),
        (
            "trip = session.get(Trip, n)\ntrip.status = 'x'\nelsewhere.other.add(trip)\nsession.commit()",
            "handed on",
        ),
        (
            "trip = session.get(Trip, n)\ntrip.status = 'x'\nif at:\n    session.add(trip)\nsession.commit()",
            "handed on",
        ),
        ("trip = session.get(Trip, n)\ntrip.status = 'x'\nreturn session.add(trip)", "handed on"),
    ],
)
def test_a_name_that_stands_for_more_and_what_is_added_elsewhere_stay(tmp_path: Path, code: str, reason: str) -> None:
    found = rewritten(tmp_path, code)

    assert "rewritten." not in "".join(file.after for file in found.changed)
    assert any(reason in each.reason for each in found.uses), [each.reason for each in found.uses]


MODELS = """
from sqlalchemy import Boolean, Column, DateTime, Integer, Text, event
from sqlalchemy.orm import Session, declarative_base, scoped_session, sessionmaker

Base = declarative_base()
SessionLocal = sessionmaker()


class Dated:
    id = Column(Integer, primary_key=True)
    name = Column(Text)


class Bike(Dated, Base):
    __tablename__ = "bikes"
    shop_id = Column(Integer)
    is_free = Column(Boolean)
"""


def rewritten_bikes(folder: Path, code: str, models: str = MODELS) -> tuple[str, list[str]]:
    """The function as it is now, and why what stays does."""
    fields = (
        Field("name", "name", FieldType.STRING),
        Field("shop_id", "shop_id", FieldType.INT),
        Field("is_free", "is_free", FieldType.BOOLEAN),
    )
    bikes = TableName("public", "bikes")
    base = MappedColumn("BASE", bikes, "bike_uuid", None, RefKeySource(version="version"), fields)
    layout = Layout("bikes", RowKeySource(bikes, "id", "bike_uuid"), {"BASE": base})
    index = {
        "table": "shop_index",
        "column_defs": [
            {
                "column_key": "BASE",
                "fields": [{"field": "shop_id", "type": "int"}, {"field": "is_free", "type": "boolean"}],
            }
        ],
    }
    (folder / "models.py").write_text(models)
    head = "from models import Bike\n\n\ndef use(session, n, value):\n"
    (folder / "service.py").write_text(head + indent(dedent(code), "    ") + "\n")
    wishes = RewriteWishes("stores:store", (), tuple(RewriteAssumption))
    found = rewrite_code(folder, layout, [IndexDefinition.from_document(index, "a test", "bikes")], (), wishes)
    said = [each.reason for each in found.uses if each.verdict is RewriteVerdict.LEFT]
    after = [file.after for file in found.changed if file.name == "service.py"]
    return (dedent(after[0].partition("value):\n")[2]).strip() if after else ""), said


FREE = 'rewritten.found(store, "shop_index", rewritten.whole_number(n), [("is_free", "=", {})], column_name="BASE")'


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("bike = session.get(Bike, n)\nreturn bike.name", 'bike = {}\nreturn bike.get("name")'),
        ("bike = session.get(Bike, n)\nbike.name = 'x'\nsession.commit()", "bike = {}\nrewritten.change_found("),
        ("return len(session.query(Bike).filter(Bike.shop_id == n, Bike.is_free).all())", FREE.format("True")),
        ("return len(session.query(Bike).filter(Bike.shop_id == n, ~Bike.is_free).all())", FREE.format("False")),
        (
            "return len(session.query(Bike).filter(Bike.shop_id == n, Bike.is_free.is_(False)).all())",
            FREE.format("False"),
        ),
        (
            "return session.query(Bike).filter_by(id=n, shop_id=value, is_free=True).first() is None",
            '{"shop_id": rewritten.int_value(rewritten.whole_number(value)), "is_free": rewritten.bool_value(True)}',
        ),
        (
            "return len(session.query(Bike).filter(Bike.shop_id == 5, Bike.shop_id.in_(value)).all())",
            '5, [("shop_id", "in", list(map(rewritten.whole_number, value)))]',
        ),
        ("return len(session.query(Bike).filter_by(shop_id='5').all())", "rewritten.whole_number('5')"),
    ],
)
def test_columns_of_a_mixin_truth_values_and_numbers_that_may_be_texts(
    tmp_path: Path, code: str, expected: str
) -> None:
    after, left = rewritten_bikes(tmp_path, code)

    assert expected.replace("{}", latest("n"), 1 if "bike = " in expected else 0) in after, left


SILENT = "bike = session.get(Bike, n)\nreturn bike.name"
SAYS = "bike = session.get(Bike, n)\nbike.name = 'x'\nsession.commit()"


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("    name = Column(Text)", "    name = Column(Text)\n    at = Column(DateTime, onupdate=str)", SAYS),
        ("    name = Column(Text)", "    name = Column(Text)\n\n    @validates('name')\n    def x(self): ...", SAYS),
        ("class Dated", "def stamp():\n    return Column(DateTime, onupdate=str)\n\n\nclass Dated", SAYS),
        ("sessionmaker()", "sessionmaker(query_cls=str)", SILENT),
        ("sessionmaker()", "sessionmaker(**{'query_cls': str})", SILENT),
        ("sessionmaker()", "sessionmaker()\nBase.query = scoped_session(SessionLocal).query_property(str)", SILENT),
        ("sessionmaker()", "sessionmaker()\nevent.listen(SessionLocal, 'do_orm_execute', print)", SILENT),
        ("sessionmaker()", "sessionmaker()\nevent.listen(SessionLocal, 'before_flush', print)", SAYS),
        ("    name = Column(Text)", "    name = Column(Text)\n\n    @classmethod\n    def query(cls): ...", SILENT),
        ("class Bike", "@event.listens_for(Dated, 'load', propagate=True)\ndef x(*a): ...\n\n\nclass Bike", SILENT),
        ("sessionmaker()", "sessionmaker()\nfor each in (): event.listen(each, 'before_update', print)", SAYS),
        ("sessionmaker()", "sessionmaker()\nfor each in (): event.listen(*each)", SILENT),
        ("sessionmaker()", "sessionmaker()\nmodels_committed.connect(print)", SAYS),
        (
            "    name = Column(Text)",
            "    name = Column(Text)\n\n    @classmethod\n    def __declare_last__(cls):\n"
            "        event.listen(cls, 'before_update', print)",
            SAYS,
        ),
        ("is_free = Column(Boolean)", "is_free = Column(Boolean)\n    __versioned__ = {}", SAYS),
        ("    name = Column(Text)", "    name = Column(Text)\n\n    @observes('name')\n    def x(self): ...", SAYS),
        ("is_free = Column(Boolean)", "is_free = Column(Boolean)\n    __mapper_args__ = {'order_by': 'name'}", SILENT),
        ("class Dated", "class Own(Session):\n    def get(self, *a): ...\n\n\nclass Dated", SILENT),
        ("class Dated", "class Own(Session):\n    def flush(self, *a): ...\n\n\nclass Dated", SAYS),
        ("class Dated", "from sqlalchemy_easy_softdelete.mixin import generate\n\n\nclass Dated", SILENT),
        ("is_free = Column(Boolean)", "is_free = Column(Boolean)\n\nevent.listen(Bike.name, 'set', print)", SAYS),
        ("class Bike", "@event.listens_for(Dated, 'before_update')\ndef x(*a): ...\n\n\nclass Bike", SAYS),
    ],
)
def test_what_bases_sessions_and_queries_do_besides_keeps_all(tmp_path: Path, old: str, new: str, code: str) -> None:
    assert old in MODELS
    models = MODELS.replace(old, new, 1).replace(
        "= Column(Boolean)", "= Column(Boolean)\n    at = stamp()" if "def stamp" in new else "= Column(Boolean)"
    )
    (tmp_path / "plain").mkdir()

    assert "rewritten." in rewritten_bikes(tmp_path / "plain", code)[0]
    after, left = rewritten_bikes(tmp_path, code, models)
    assert "rewritten." not in after
    assert any("the model has" in each for each in left), left


def test_the_order_of_a_key_of_several_parts_that_a_base_says_cannot_be_told(tmp_path: Path) -> None:
    models = MODELS.replace("shop_id = Column(Integer)", "shop_id = Column(Integer, primary_key=True)")

    assert "rewritten." not in rewritten_bikes(tmp_path, "return session.get(Bike, (n, value)) is None", models)[0]


@pytest.mark.parametrize(
    "event", ["listens_for(Mapper, 'mapper_configured')", "listens_for(engine, 'connect')", "listens_for(x, 'begin')"]
)
def test_events_that_no_row_causes_keep_no_read(tmp_path: Path, event: str) -> None:
    models = MODELS + f"\n@event.{event}\ndef x(*a): ...\n\nserver.listen(port)\n"

    assert "rewritten." in rewritten_bikes(tmp_path, SILENT, models)[0]
