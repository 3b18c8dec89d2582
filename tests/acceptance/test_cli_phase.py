"""`tripstore phase` and `tripstore shadow`: from phase to phase without a switch, and how much is compared."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from schemaless_core.control.audit import AuditLog
from schemaless_core.control.ledgers.ledgers import Ledgers
from tests.acceptance.conftest import Shell
from tests.acceptance.migrations import Migration, copied, migration_template
from tripstore.engines.validation.compare import AnswerDifference, DifferenceClass
from tripstore.engines.validation.reads import Read
from tripstore.engines.validation.shadow.ledger import ShadowLedger
from tripstore.engines.validation.verdicts import Outcome, Reason, Tally, Verdict
from tripstore.local.servers import LocalServers

BY_STATUS = """
table: by_status
column_defs:
  - column_key: BASE
    fields:
      - {field: status, type: string}
      - {field: note, type: string}
"""


@pytest.fixture
def migration(servers: LocalServers, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Migration:
    return copied(migration_template(servers, tmp_path_factory), tmp_path / "own")


def test_a_migration_begins_in_phase_off(migration: Migration) -> None:
    document = migration.run("phase", "show", "--json").document

    assert (document["phase"], document["authority"], document["is_open"]) == ("off", "postgres", True)
    assert document["phase_after_switch"] == "live"
    lines = [" ".join(line.split()) for line in migration.run("phase", "show").stdout.splitlines()]
    assert "writes also go to no other backend" in lines


def test_phases_follow_each_other_and_each_move_is_in_the_audit_log(migration: Migration) -> None:
    for wanted in ("dualwrite", "shadow", "dualwrite", "off"):
        document = migration.run("phase", "set", wanted, "--why", "a try", "--json").document
        assert (document["phase"], document["is_done"]) == (wanted, True)
        assert migration.run("phase", "show", "--json").document["phase"] == wanted

    with migration.datastore() as datastore:
        entries = [entry for entry in AuditLog(datastore.control).newest(20) if entry.action == "phase.set"]
    assert len(entries) == 4
    assert all('"why": "a try"' in entry.detail for entry in entries)


def test_no_phase_is_left_out_on_the_way_up(migration: Migration) -> None:
    ran = migration.run("phase", "set", "shadow", code=2)

    assert "tripstore phase set dualwrite" in ran.complaint
    assert migration.run("phase", "show", "--json").document["phase"] == "off"


@pytest.mark.parametrize("wanted", ["live", "rampdown", "complete"])
def test_what_needs_a_switch_is_refused_with_the_way_to_it(migration: Migration, wanted: str) -> None:
    ran = migration.run("phase", "set", wanted, code=2)

    assert "tripstore cutover switch" in ran.complaint


def test_dualwrite_is_refused_while_capture_is_not_installed(servers: LocalServers, migration: Migration) -> None:
    """I8: a change that is not captured never reaches the mirror."""
    migration.run("schema", "remove", "--yes")

    ran = migration.run("phase", "set", "dualwrite", code=4)

    assert "capture was removed" in ran.complaint
    assert migration.run("phase", "show", "--json").document["phase"] == "off"


def test_dualwrite_is_refused_while_a_trigger_of_capture_is_off(migration: Migration) -> None:
    migration.ask("ALTER TABLE trips DISABLE TRIGGER ALL")

    ran = migration.run("phase", "set", "dualwrite", code=4)

    assert "is disabled" in ran.complaint


def test_a_dry_run_sets_nothing(migration: Migration) -> None:
    ran = migration.run("phase", "set", "dualwrite", "--dry-run")

    assert "would be set: from off to dualwrite" in ran.stdout
    assert migration.run("phase", "show", "--json").document["phase"] == "off"


def test_cohorts_are_set_beside_the_phase_kept_out_by_none_and_taken_away(migration: Migration) -> None:
    migration.run("phase", "set", "dualwrite")
    migration.run("phase", "set", "shadow", "--cohort", "get_cell_latest=5", "--cohort", "*=1%")
    document = migration.run("phase", "set", "--cohort", "get_cell_latest=0", "--json").document

    assert document["phase"] == "shadow"
    assert document["cohorts"] == {"*": 1.0, "get_cell_latest": 0.0}
    assert document["cohorts_after_switch"] == {}
    assert "1 % of *, 0 % of get_cell_latest go to schemaless" in migration.run("phase", "show").stdout

    document = migration.run("phase", "set", "--cohort", "get_cell_latest=*", "--json").document
    assert document["cohorts"] == {"*": 1.0}


def test_the_cohort_of_an_index_that_is_not_configured_any_more_is_taken_away(migration: Migration) -> None:
    folder = migration.shell.folder / "indexes"
    folder.mkdir()
    (folder / "by_status.yaml").write_text(BY_STATUS)
    migration.configure(indexes="indexes")
    migration.run("phase", "set", "dualwrite", "--cohort", "query_index:by_status=5")
    migration.configure()

    ran = migration.run("phase", "set", "--cohort", "query_index:by_status=6", code=2)
    assert "There is no operation" in ran.complaint
    document = migration.run("phase", "set", "--cohort", "query_index:by_status=*", "--json").document

    assert document["cohorts"] == {}
    ran = migration.run("phase", "set", "--cohort", "query_index:by_status=*", code=2)
    assert "There is no operation" in ran.complaint


@pytest.mark.parametrize(
    ("cohort", "said"),
    [
        ("get_cel_latest=5", "Did you mean get_cell_latest?"),
        ("query_index:nothing=5", "There is no operation"),
        ("get_row=101", "0 to 100"),
        ("get_row", "write get_cell_latest=5"),
        ("get_row=many", "write get_cell_latest=5"),
    ],
)
def test_a_cohort_that_means_nothing_is_refused(migration: Migration, cohort: str, said: str) -> None:
    assert said in migration.run("phase", "set", "--cohort", cohort, code=2).complaint


def test_without_a_legacy_store_there_is_no_phase(shell: Shell) -> None:
    assert shell.call("init", "--shards", "4").code == 0

    ran = shell.call("phase", "show")

    assert ran.code == 2
    assert "no legacy store" in ran.complaint


# ---- shadow -------------------------------------------------------------------------------------------------------


def compared(migration: Migration, *verdicts: Verdict) -> None:
    """What a process compared, and wrote at its end."""
    tally = Tally()
    for verdict in verdicts:
        tally.record(verdict)
    with migration.datastore() as datastore:
        ShadowLedger(Ledgers(datastore.control), lambda read, _entry: f"repeat {read.name}").flush(tally)


READ = Read("get_cell_latest", {})
EQUAL = Verdict(READ, Outcome.EQUAL)


def test_how_much_is_compared_is_set_and_given_back(migration: Migration) -> None:
    migration.run("phase", "set", "dualwrite")
    migration.run("phase", "set", "shadow")
    document = migration.run("shadow", "set", "--share", "0.25", "--why", "less load", "--json").document
    assert (document["share"], document["per_second"], document["is_comparing"]) == (0.25, 200.0, True)

    document = migration.run("shadow", "set", "--per-second", "7", "--json").document
    assert (document["share"], document["per_second"]) == (0.25, 7.0)

    assert "100 % of the reads" in migration.run("shadow", "set", "--reset", "--dry-run").stdout
    assert "25 % of the reads" in migration.run("shadow", "status", code=3).stdout
    assert migration.run("shadow", "set", "--reset", "--json").document["share"] == 1.0


@pytest.mark.parametrize("arguments", [(), ("--share", "1.5"), ("--per-second", "-1")])
def test_a_share_that_is_none_is_refused(migration: Migration, arguments: tuple[str, ...]) -> None:
    migration.run("shadow", "set", *arguments, code=2)


def test_too_little_compared_is_not_verified(migration: Migration) -> None:
    """I12: exit code 3, not 0."""
    assert migration.run("shadow", "status", "--json", code=3).document["operations"] == []
    compared(migration, EQUAL, Verdict(READ, Outcome.NOT_COMPARED, reason=Reason.BUSY))

    (operation,) = migration.run("shadow", "status", "--json", code=3).document["operations"]

    assert (operation["compared"], operation["missing"], operation["not_compared"]) == (1, 1, 1)
    assert operation["by_reason"] == {"busy": 1}


def test_enough_compared_and_nothing_different_is_fine(migration: Migration) -> None:
    compared(migration, EQUAL, EQUAL, EQUAL)

    (operation,) = migration.run("shadow", "status", "--json").document["operations"]

    assert (operation["equal"], operation["mismatches"], operation["missing"]) == (3, 0, 0)
    assert operation["rate_below"] == pytest.approx(1 - 0.05 ** (1 / 3))


def test_a_mismatch_is_shown_with_class_path_and_a_command(migration: Migration) -> None:
    compared(
        migration, EQUAL, Verdict(READ, Outcome.MISMATCH, [AnswerDifference(DifferenceClass.FIELD, "BASE@3", "fare")])
    )

    ran = migration.run("shadow", "status", code=1)
    document = migration.run("shadow", "status", "--json", code=1).document

    assert "1 field" in ran.stdout
    for said in ("BASE@3", "fare", "repeat get_cell_latest"):
        assert said in ran.stdout
    (known,) = document["mismatches"]
    assert (known["kind"], known["entry"], known["path"]) == ("field", "BASE@3", "fare")


def test_rules_that_ignore_are_counted_and_those_that_ended_apart(migration: Migration) -> None:
    rule = {"reason": "rounded", "owner": "billing", "operation": "get_row"}
    today = datetime.now(UTC).date()
    rules = [rule | {"until": today.replace(year=today.year + 2)}, rule | {"until": today.replace(year=2020)}]
    migration.configure(shadow={"ignores": rules})

    comparing = migration.run("shadow", "status", "--json", code=3).document["comparing"]

    assert (comparing["ignores"], comparing["ignores_ended"]) == (1, 1)
