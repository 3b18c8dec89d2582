"""The preflight against what really happens: every verdict is held against a Postgres with capture, in every phase."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest
import yaml

from schemaless_core.definitions.index import IndexDefinition
from tests.acceptance.conftest import Shell
from tests.acceptance.migrations import Migration
from tests.layouts import COMPANY, company_database, document
from tests.preflights import (
    INDEX,
    LAYOUT,
    MORE,
    OF_PARTITIONS,
    PARTITIONED,
    RIDES,
    STATEMENTS,
    UNCLEAR,
    Outcome,
    Said,
    happens,
)
from tripstore.audit.preflight import writes
from tripstore.audit.preflight.asked import Asked
from tripstore.audit.preflight.catalogue import read_catalogue
from tripstore.audit.preflight.company import Company
from tripstore.audit.preflight.preflight import Preflight
from tripstore.audit.preflight.verdicts import BEFORE, Judged, StatementVerdict
from tripstore.backends.postgres.handover.closing import close_tables, remove_capture
from tripstore.backends.postgres.layout.reading import load_layout
from tripstore.backends.postgres.wire.connections import connected
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase

FORCED = ("--force", "--why", "a test", "--yes")


class Observed(NamedTuple):
    """What was said before anything was installed, and what happened in each phase afterwards."""

    company: Company
    outcomes: dict[Phase, dict[str, Outcome]]


@pytest.fixture(scope="module")
def observed(servers: LocalServers, tmp_path_factory: pytest.TempPathFactory) -> Observed:
    """A whole migration; in each phase every statement is run, and taken back."""
    url = company_database(servers, "machine", COMPANY + MORE)
    with connected(url, "audit") as connection:
        company = Company(LAYOUT, read_catalogue(connection, LAYOUT))
    migration = Migration(Shell(tmp_path_factory.mktemp("preflight")), url)
    migration.configure()
    outcomes = {}
    for phase in Phase:
        enter(migration, phase)
        outcomes[phase] = {said.statement: happens(url, said, phase) for said in STATEMENTS}
    return Observed(company, outcomes)


@pytest.fixture(scope="module")
def partitioned(servers: LocalServers, tmp_path_factory: pytest.TempPathFactory) -> Observed:
    """The same of a table in partitions, before and after the switch."""
    url = company_database(servers, "machine", PARTITIONED)
    layout = load_layout(RIDES)
    with connected(url, "audit") as connection:
        company = Company(layout, read_catalogue(connection, layout))
    migration = Migration(Shell(tmp_path_factory.mktemp("partitioned")), url)
    migration.configure(legacy={"postgres": url, "layout": RIDES})
    outcomes = {}
    for phase in (Phase.OFF, Phase.LIVE):
        enter(migration, phase)
        outcomes[phase] = {said.statement: happens(url, said, phase, layout) for said in OF_PARTITIONS}
    return Observed(company, outcomes)


def enter(migration: Migration, phase: Phase) -> None:
    if phase is Phase.OFF:
        migration.run("schema", "apply")
    elif phase is Phase.LIVE:
        migration.run("cutover", "switch", *FORCED)
    elif phase is Phase.COMPLETE:
        # What `cutover complete` does in Postgres; its gates want a worker and a mirror that are no part of this.
        with connected(migration.url, "test") as connection:
            close_tables(connection, LAYOUT)
            remove_capture(connection, LAYOUT)
    else:
        migration.run("phase", "set", phase.value)


def judge(company: Company, statement: str) -> Judged:
    index = IndexDefinition.from_document(INDEX, "index", "trips")
    return Preflight(company, [index]).judge(Asked(statement, "test"))


def disagreements(observed: Observed, statements: Sequence[Said]) -> list[str]:
    """Where Postgres did something else than was said."""
    found = []
    for said in statements:
        judged = judge(observed.company, said.statement)
        for phase in observed.outcomes:
            verdict, outcome = judged.verdict(phase), observed.outcomes[phase][said.statement]
            states = {
                reason.sqlstate for reason in judged.because([phase]) if reason.verdict is StatementVerdict.REFUSED
            }
            is_said = (
                outcome.sqlstate in states if verdict is StatementVerdict.REFUSED else outcome.sqlstate is None
            ) and verdict is not StatementVerdict.UNCLEAR
            if phase in BEFORE and outcome.sqlstate is None and not said.statement.startswith("LOCK"):
                is_said = is_said and (outcome.logged > 0) == (verdict is StatementVerdict.SLOWED)
            if phase is Phase.OFF:
                is_said = is_said and bool(outcome.faults) == (verdict is StatementVerdict.BREAKS)
            if not is_said:
                found.append(f"{phase}: {said.statement}: {verdict} {states}, and Postgres: {outcome}")
    return found


def test_what_was_said_before_anything_was_installed_is_what_happens_in_every_phase(observed: Observed) -> None:
    """Refused is refused, with that SQLSTATE, and all else is accepted.

    What is slowed, and nothing else, is logged; of what breaks capture, and of nothing else, `doctor` complains.
    """
    assert disagreements(observed, STATEMENTS) == []


def test_partitions_are_judged_as_the_table_that_they_are_of(partitioned: Observed) -> None:
    assert disagreements(partitioned, OF_PARTITIONS) == []
    for said in OF_PARTITIONS:
        judged = judge(partitioned.company, said.statement)
        assert [judged.verdict(phase).value for phase in (Phase.OFF, Phase.LIVE, Phase.COMPLETE)] == list(said[:3])


@pytest.mark.parametrize("said", STATEMENTS, ids=lambda said: said.statement[:40])
def test_each_verdict_is_the_one_that_is_written_down(observed: Observed, said: Said) -> None:
    judged = judge(observed.company, said.statement)

    verdicts = [judged.verdict(phase).value for phase in Phase]
    assert verdicts == [said.before] * 3 + [said.after] * 2 + [said.complete], judged.reasons


@pytest.mark.parametrize("statement", UNCLEAR)
def test_what_cannot_be_told_is_unclear(observed: Observed, statement: str) -> None:
    """I12: never false comfort."""
    judged = judge(observed.company, statement)

    assert StatementVerdict.UNCLEAR in {judged.verdict(phase) for phase in Phase}, judged.reasons


@pytest.mark.parametrize("rule", ["_fact", "_pairs", "_truncate", "_after_the_switch", "_delete"])
def test_a_rule_that_is_missing_is_caught(observed: Observed, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the comparison."""
    monkeypatch.setattr(writes, rule, lambda *_arguments, **_named: iter(()))

    assert disagreements(observed, STATEMENTS) != []


def test_without_a_database_what_it_alone_knows_is_unclear() -> None:
    company = Company(load_layout(yaml.safe_load(yaml.safe_dump(document()))))

    for statement in ("DELETE FROM trips WHERE id = 1", "SELECT status FROM open_trips", "COPY trips FROM stdin"):
        assert judge(company, statement).verdict(Phase.OFF) is StatementVerdict.UNCLEAR, statement
    assert judge(company, "TRUNCATE trips").verdict(Phase.OFF) is StatementVerdict.REFUSED


QUOTED = """
CREATE TABLE "Car Rides" (id bigint PRIMARY KEY, uuid uuid NOT NULL UNIQUE, "State" text);
CREATE FUNCTION "endRide"(ride bigint) RETURNS void LANGUAGE sql AS
    $$ UPDATE "Car Rides" SET "State" = 'ended' WHERE id = ride $$;
CREATE FUNCTION end_all() RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM "endRide"(1); END $$;
CREATE FUNCTION unrelated() RETURNS text LANGUAGE sql AS $$ SELECT 'a car' $$;
"""
CAR_RIDES = """
datastore: rides
row_key: {table: "Car Rides", id: id, uuid: uuid}
columns: {BASE: {table: "Car Rides", ref_key: {version: v}, fields: {state: {column: State, type: string}}}}
"""


def test_functions_are_read_for_names_in_quotes_too(servers: LocalServers) -> None:
    layout = load_layout(yaml.safe_load(CAR_RIDES))
    with connected(company_database(servers, "machine", QUOTED), "audit") as connection:
        company = Company(layout, read_catalogue(connection, layout))

    def verdict(statement: str) -> StatementVerdict:
        return Preflight(company).judge(Asked(statement, "test")).verdict(Phase.OFF)

    assert verdict('SELECT "endRide"(1)') is StatementVerdict.UNCLEAR
    assert verdict("SELECT end_all()") is StatementVerdict.UNCLEAR
    assert verdict("SELECT unrelated()") is StatementVerdict.FINE
