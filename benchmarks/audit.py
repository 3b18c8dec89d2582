"""How fast `audit code` reads a code base, beside `grep -r`, which knows no models but is what one would do instead."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.timing import Comparison, paired
from tripstore.audit import LegacyTables, audit_code
from tripstore.audit.reading.files import SourceTree

REPOSITORY = Path(__file__).parents[1]
TABLES = ("trips", "billing_attempts", "trip_notes", "fare_adjustments")
PACKAGES, MODULES_OF_PACKAGE = 40, 25
#: Of so many modules one uses the tables, as in a company where some services are about trips.
USES_EVERY = 8

_MODELS = """\
from sqlalchemy import Column, ForeignKey, Integer, Text
from sqlalchemy.orm import declarative_base, relationship

Base = declarative_base()


class Trip(Base):
    __tablename__ = "trips"
    id = Column(Integer, primary_key=True)
    status = Column(Text)
    notes = relationship("TripNote")


class TripNote(Base):
    __tablename__ = "trip_notes"
    id = Column(Integer, primary_key=True)
    trip_id = Column(Integer, ForeignKey("trips.id"))
    text = Column(Text)
"""
_USES = """\
from sqlalchemy import select, update

from company.models import Trip, TripNote


def close(session, cursor, number):
    for trip in session.scalars(select(Trip).where(Trip.id == number)):
        trip.status = "closed"
        trip.notes.append(TripNote(text="closed"))
    session.execute(update(Trip).values(status="closed"))
    cursor.execute("SELECT t.id, n.text FROM trips t JOIN trip_notes n ON n.trip_id = t.id WHERE t.id = %s", [number])


"""
_OTHERS = """\
class Ledger{n}:
    def __init__(self, entries, limit=100):
        self.entries = [entry for entry in entries if entry.amount is not None]
        self.limit = limit

    def total(self, currency):
        amounts = {{entry.account: entry.amount for entry in self.entries if entry.currency == currency}}
        return sum(amounts.values()) if len(amounts) <= self.limit else None

    def report(self, cursor, account):
        cursor.execute("SELECT account, sum(amount) FROM ledger_{n} WHERE account = %s GROUP BY account", [account])
        return "\\n".join(f"{{name:20}} {{amount:10.2f}}" for name, amount in cursor.fetchall())


"""


def measure(*, quick: bool) -> Iterator[Comparison]:
    """This repository, and a company's with a thousand modules."""
    pairs = 1 if quick else 5
    yield _compared("repository", REPOSITORY, pairs)
    with TemporaryDirectory() as folder:
        root = Path(folder) / "company"
        _write_company(root)
        yield _compared("a company", root, pairs)


def _compared(name: str, root: Path, pairs: int) -> Comparison:
    tables = LegacyTables.parse(TABLES)
    # Warms the cache of files for both.
    files = [file.path for file in SourceTree(root).files()]
    lines = sum(path.read_bytes().count(b"\n") for path in files)
    audits, greps = [], []
    for _ in range(pairs):
        audits.append(_seconds(lambda: audit_code(root, tables)) * 1e3)
        greps.append(_seconds(lambda: _grep(root)) * 1e3)
    seconds = statistics.median(audits) / 1e3
    label = f"audit, {name}: {len(files) / seconds:,.0f} files/s, {lines / seconds:,.0f} lines/s; grep"
    return paired(label, audits, greps, unit="ms")


def _grep(root: Path) -> None:
    kinds = ["--include=*.py", "--include=*.sql", "--exclude-dir=.*", "--exclude-dir=node_modules"]
    command = ["grep", "-rnwE", *kinds, "|".join(TABLES), str(root)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _write_company(root: Path) -> None:
    root.mkdir()
    (root / "__init__.py").touch()
    (root / "models.py").write_text(_MODELS)
    for package in range(PACKAGES):
        folder = root / f"service_{package}"
        folder.mkdir()
        (folder / "__init__.py").touch()
        for module in range(MODULES_OF_PACKAGE):
            is_user = (package + module) % USES_EVERY == 0
            others = "".join(_OTHERS.format(n=number) for number in range(4))
            (folder / f"module_{module}.py").write_text((_USES if is_user else "") + others)
