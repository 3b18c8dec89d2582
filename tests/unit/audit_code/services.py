"""Services in a few lines, and what the audit finds in them."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from tripstore.audit import CodeAudit, LegacyTables, audit_code

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


QUERY, GET, NEW, INSTANCE = "orm.query", "orm.get", "orm.new", "orm.instance"
