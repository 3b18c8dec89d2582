"""Models, and what is known to be one of them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.unit.audit_code.services import GET, INSTANCE, MODELS, NEW, QUERY, TABLES, audit, found, write
from tripstore.audit import LegacyTables, UseKind, audit_code


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

    assert ("service.py", 5, UseKind.INSTANCE) in [(f.file, f.line, f.kind) for f in audit(tmp_path, files).uses]


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
