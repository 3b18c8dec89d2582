"""`audit rewrite`: what it prints, what it writes, and what its exit code says."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from textwrap import dedent

import pytest

from tests.acceptance.conftest import Ran, Shell
from tripstore.cli.audit.rewrite import rewrite

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "audit-rewrite.md"
SERVICE = {
    "models.py": """
        from sqlalchemy import BigInteger, Column, Numeric, Text
        from sqlalchemy.orm import declarative_base

        Base = declarative_base()


        class Trip(Base):
            __tablename__ = "trips"
            id = Column(BigInteger, primary_key=True)
            city = Column(Text, nullable=False)
            status = Column(Text, nullable=False)
            fare = Column(Numeric(12, 2))
        """,
    "service.py": """
        from sqlalchemy import select

        from models import Trip, factory


        def fare(trip_id):
            with factory() as session:
                trip = session.get(Trip, trip_id)
                return None if trip is None else trip.fare


        def in_city(city):
            with factory() as session:
                return [trip.id for trip in session.scalars(select(Trip).where(Trip.city == city))]


        def request(city):
            with factory.begin() as session:
                session.add(Trip(city=city))
        """,
}
LAYOUT = """
datastore: trips
row_key: {table: trips, id: id, uuid: trip_uuid}
columns:
  BASE:
    table: trips
    ref_key: {version: base_version}
    fields:
      city: {type: string}
      status: {type: string}
      fare: {type: decimal}
"""
STORE = ("--store", "stores:store")


@pytest.fixture
def service(shell: Shell) -> Shell:
    code = shell.folder / "code"
    code.mkdir()
    for name, text in SERVICE.items():
        (code / name).write_text(dedent(text).lstrip())
    (shell.folder / "layout.yaml").write_text(LAYOUT)
    for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(code), *command], check=True)
    return shell


def run(service: Shell, *arguments: str) -> Ran:
    return service.call("audit", "rewrite", "code", "--layout", "layout.yaml", *arguments)


def test_a_diff_is_printed_beside_the_reasons_and_the_index_that_is_needed(service: Shell) -> None:
    ran = run(service, *STORE)

    assert ran.code == 1  # uses stay
    assert "service.py:8:" in ran.stdout
    assert '+        trip = rewritten.latest_of_id(store, trip_id, "BASE")' in ran.stdout
    assert "+        # tripstore rewrite: no index answers it; create one" in ran.stdout
    assert "table: city_index\ndatastore: trips\ncolumn_defs:\n  - column_key: BASE\n" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "1 of 3 uses would be rewritten, 2 stay with a reason. --apply writes them."
    assert (service.folder / "code" / "service.py").read_text() == dedent(SERVICE["service.py"]).lstrip()


def test_apply_writes_and_a_dirty_file_is_left_and_named(service: Shell) -> None:
    file = service.folder / "code" / "service.py"
    file.write_text(file.read_text() + "# mine\n")

    dirty = run(service, *STORE, "--apply")
    assert (dirty.code, "NOT WRITTEN: service.py it has changes that are not committed" in dirty.stdout) == (1, True)
    assert "rewritten." not in file.read_text()

    assert "1 of 3 uses are rewritten" in run(service, *STORE, "--apply", "--allow-dirty").stdout
    assert "rewritten.latest_of_id(store, trip_id" in file.read_text()
    again = run(service, *STORE, "--json").document
    assert (again["rewritten"], again["left"], again["diffs"]) == (0, 2, [])


def test_an_index_that_exists_answers_and_is_named(service: Shell) -> None:
    text = run(service, *STORE, "--json").document["indexes"][0]
    (service.folder / "indexes").mkdir()
    (service.folder / "indexes" / "city.yaml").write_text(text)
    (service.folder / "tripstore.yaml").write_text(
        "datastore: trips\nshards: 4\nindexes: indexes\nclusters: {a: {primary: 'sqlite:///a'}}\n"
    )

    document = run(service, *STORE, "--json", "-c", "tripstore.yaml").document

    assert document["needs"] == [{"fields": {"city": "string"}, "answered_by": "city_index"}]
    assert (document["rewritten"], document["left"], document["indexes"]) == (2, 1, [])
    assert 'rewritten.found(store, "city_index", city, column_name="BASE")' in document["diffs"][0]["diff"]


def test_exit_codes(service: Shell) -> None:
    assert run(service, "--exclude", "service.py").code == 0
    (service.folder / "code" / "old.py").write_text("print 'trips'\n")
    assert run(service, "--exclude", "service.py").code == 3
    assert run(service).code == 1
    assert run(service, "--apply").code == 2  # where the store is must be said
    assert run(service, "--store", "no module").code == 2
    assert service.call("audit", "rewrite", "code").code == 2  # no layout


def test_the_page_names_options_that_there_are() -> None:
    options = {option for parameter in rewrite.params for option in parameter.opts}
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("tripstore audit rewrite")]

    used = {word for line in lines for word in shlex.split(line, comments=True) if word.startswith("--")}
    assert used
    assert used <= options
