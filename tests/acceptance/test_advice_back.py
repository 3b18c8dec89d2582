"""Every refusal of the way back names what leads out: a migration that is live goes back to Postgres by its advice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.acceptance.advice import BACK, FORWARD, WRITE, Case, Company, family, in_short, nothing
from tests.acceptance.test_advice import (
    FRESH,
    SERVED,
    has_a_session_of_another_layout,
    has_lost_a_disk,
    in_shadow,
    mounts_it_again,
    restarts_it,
)
from tests.chaos.actors import wait_until
from tests.unit.test_gates import FINE, FINE_BACK, SETTINGS
from tripstore.backends.schemaless.shards import REVERSE_GROUP
from tripstore.local.servers import LocalServers
from tripstore.migration.cutover import gates
from tripstore.migration.cutover.facts import Facts, ServerFacts
from tripstore.migration.cutover.plan import Direction, plan
from tripstore.migration.cutover.verdicts import GateVerdict
from tripstore.thresholds import CutoverSettings

#: What no catalogue tells.
REFUSES = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.fare_amount = 13 THEN RAISE EXCEPTION 'no fare of 13'; END IF; RETURN NEW;
END $$;
"""
TRIGGER = "CREATE OR REPLACE TRIGGER refuse BEFORE UPDATE ON trips FOR EACH ROW EXECUTE FUNCTION refuse()"


@pytest.fixture(scope="module")
def live(servers: LocalServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    """Schemaless is the authority: every gate was opened by its advice, while services went on."""
    made = Company(in_shadow(servers, tmp_path_factory, tmp_path_factory.mktemp("live") / "own"))
    made.migration.ask(REFUSES)
    made.serve()
    made.hand_over(["cutover", FORWARD], goes_on)
    yield made
    made.stop()


def goes_on(company: Company) -> None:
    """Services write where they may, and read."""
    if company.migration.authority == "postgres":
        company.change()
        company.migration.wait_until_mirrored()
    company.migration.compare_reads()


def has_lost_a_trigger(company: Company) -> None:
    company.migration.ask("ALTER TABLE trips DISABLE TRIGGER ALL")


def has_halted_the_reverse_mirror(company: Company) -> None:
    with company.migration.datastore() as datastore:
        datastore.triggers.coordinator.halt(REVERSE_GROUP, "a test")


def has_no_worker(company: Company) -> None:
    company.stop()
    wait_until("nothing serves it", lambda: not company.gate("reverse mirror", BACK)["is_passed"])


def puts_what_postgres_refuses(company: Company) -> None:
    company.migration.ask(TRIGGER)
    cell = company.base()
    assert isinstance(cell.body, dict)
    with company.migration.store() as store:
        store.put_cell(cell.row_key, "BASE", cell.ref_key + 1, {**cell.body, "fare": "13.00"})
    wait_until("it is parked", lambda: not company.gate("parked cells", BACK)["is_passed"])


def lets_postgres_take_it(company: Company) -> None:
    company.migration.ask("DROP TRIGGER IF EXISTS refuse ON trips")


def puts_the_next_version(company: Company) -> None:
    """What Postgres refuses stays refused; what was put becomes history."""
    cell = company.base()
    assert isinstance(cell.body, dict)
    if cell.body.get("fare") == "13.00":
        with company.migration.store() as store:
            store.put_cell(cell.row_key, "BASE", cell.ref_key + 1, {**cell.body, "fare": "12.00"})


def is_written_by_sql(company: Company) -> None:
    """Postgres takes it with a warning only."""
    migration = company.migration
    migration.configure(legacy=migration.config["legacy"] | {"direct_writers": "warn"})
    migration.run("schema", "apply")
    migration.ask(WRITE)


CASES = in_short(
    [
        Case("servers", has_lost_a_disk, mounts_it_again, BACK),
        Case("layouts", has_a_session_of_another_layout, restarts_it, BACK),
        Case("capture", has_lost_a_trigger, nothing, BACK),
        Case("reverse mirror", has_halted_the_reverse_mirror, nothing, BACK),
        Case("reverse mirror", has_no_worker, nothing, BACK),
        Case("parked cells", puts_what_postgres_refuses, lets_postgres_take_it, BACK),
        Case("parked cells", puts_what_postgres_refuses, puts_the_next_version, BACK),
    ]
)
WRITTEN = Case("direct writers", is_written_by_sql, nothing, BACK)
IN_POSTGRES = Case("authority", nothing, goes_on, BACK)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_a_gate_of_the_way_back_advises_leads_out(live: Company, case: Case) -> None:
    live.obey(case)


def test_direct_writes_lead_back_by_force_and_the_switch_leads_there_again(live: Company) -> None:
    live.obey(WRITTEN)
    assert live.migration.authority == "postgres"

    live.migration.configure()
    live.migration.run("schema", "apply")
    live.obey(IN_POSTGRES)
    assert live.migration.authority == "schemaless"


#: What cannot refuse, or has no way out by design.
WITHOUT = {
    (FORWARD, "buffered cells"): "while Postgres is the authority nothing is kept",
    (FORWARD, "rewritten queries"): "it names an experiment: tests/acceptance/test_cli_experiment.py runs the command",
    (FORWARD, "remaining uses"): "it names a code base: tests/acceptance/test_cli_experiment.py runs the commands",
    (BACK, "buffered cells"): "tests/acceptance/test_cli_buffer.py executes it",
    (BACK, "phase"): "refuses a migration that is complete: nothing leads back",
}


def unadvised() -> set[tuple[str, str]]:
    """Gates whose advice no test executes."""
    known = {
        (way.value, family(verdict.name))
        for way, facts in ((Direction.FORWARD, FINE), (Direction.BACK, FINE_BACK))
        for verdict in plan(way, facts, SETTINGS).verdicts
    }
    tried = {(case.direction, family(case.gate)) for case in [*FRESH, *SERVED, *CASES, WRITTEN, IN_POSTGRES]}
    return known - tried - set(WITHOUT)


def test_the_advice_of_every_gate_is_executed() -> None:
    assert unadvised() == set()


def test_control_a_gate_without_a_case_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def gate(facts: Facts, settings: CutoverSettings) -> Iterator[GateVerdict]:
        yield GateVerdict("chance", False, "full", "empty", "`tripstore doctor` says more.")

    monkeypatch.setattr(gates, "BACK", (*gates.BACK, gate))

    assert unadvised() == {(BACK, "chance")}


def test_the_end_advises_what_the_way_back_does() -> None:
    """`cutover complete` has no gate of its own."""
    early = replace(FINE, servers=(ServerFacts("a:3306", "connection refused"),))

    hints = {verdict.name: verdict.hint for verdict in gates.back_verdicts(early, SETTINGS)}

    assert {verdict.name: verdict.hint for verdict in gates.complete_verdicts(early, SETTINGS)} == {
        name: hints[name] for name in ("authority", "phase", "servers")
    }
