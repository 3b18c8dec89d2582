"""Every refusal's advice is run as it stands, and leads out: no gate names a command that leaves it shut."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from schemaless_core.failpoints import ENVIRONMENT_VARIABLE
from tests.acceptance.advice import WRITE, Case, Company, in_short, nothing
from tests.acceptance.migrations import Migration, copied, migration_template
from tests.chaos.actors import wait_until
from tests.damage import spoil
from tests.purges import purge
from tripstore.handover import switch
from tripstore.local.servers import LocalServers
from tripstore.migration.backfill.backfill import EVERYTHING, Backfill


def in_shadow(servers: LocalServers, templates: pytest.TempPathFactory, folder: Path) -> Migration:
    migration = copied(migration_template(servers, templates), folder)
    migration.run("phase", "set", "dualwrite")
    migration.run("phase", "set", "shadow")
    return migration


@pytest.fixture
def company(servers: LocalServers, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Iterator[Company]:
    """Nothing was copied, and no worker runs yet."""
    made = Company(in_shadow(servers, tmp_path_factory, tmp_path / "own"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def served(servers: LocalServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    """A worker runs, and what one case breaks its advice mends: it is there for the next one."""
    made = Company(in_shadow(servers, tmp_path_factory, tmp_path_factory.mktemp("served") / "own"))
    made.serve()
    yield made
    made.stop()


def is_off(company: Company) -> None:
    company.migration.run("phase", "set", "off")


def has_a_backfill_of_a_part(company: Company) -> None:
    company.migration.run("backfill", "start", "--where", "t.id > 2")


def has_a_backfill_that_waits(company: Company) -> None:
    with company.migration.store() as store:
        backfill = Backfill(store.facade)
        backfill.begin(backfill.plan(EVERYTHING))


def has_a_backfill_that_was_given_up(company: Company) -> None:
    has_a_backfill_that_waits(company)
    company.migration.run("backfill", "cancel", "--yes")


def has_a_conflict_in_quarantine(company: Company) -> None:
    company.serve()
    with company.migration.datastore() as datastore:
        datastore.as_copier().put_cell(company.migration.row_keys()[0], "BASE", 1, {"status": "foreign"})
    company.migration.run("backfill", "start", code=1)


def has_a_backfill_from_before_capture(company: Company) -> None:
    company.migration.run("backfill", "start")
    breaks_capture(company)
    company.migration.run("doctor", code=1)
    company.migration.run("schema", "apply")


def breaks_capture(company: Company) -> None:
    company.migration.ask("ALTER TABLE trips DISABLE TRIGGER ALL")


def has_a_diff_from_before_the_backfill(company: Company) -> None:
    company.past()
    company.migration.run("backfill", "start")


def differs(company: Company) -> None:
    company.past()
    with company.migration.datastore() as datastore:
        spoil(datastore, company.base(), b'{"status":"foreign"}')
    company.migration.run("diff", "start", code=1)


def differs_in_the_past(company: Company) -> None:
    """A closer diff found it; one that looks less closely says nothing of it."""
    company.past()
    company.change()
    company.migration.run("mirror", "drain")
    older = company.base()  # Postgres has it in its log
    company.change()
    company.migration.run("mirror", "drain")
    with company.migration.datastore() as datastore:
        spoil(datastore, older, b'{"status":"foreign"}')
    company.migration.run("diff", "start", "--older", "all", "--keys", "found.jsonl", code=1)
    company.migration.run("diff", "start")


def differed_in_the_past_and_was_repaired_by_its_key_file(company: Company) -> None:
    differs_in_the_past(company)
    company.migration.run("repair", "--diff", "found.jsonl", "--yes")
    company.migration.run("diff", "start")
    assert company.migration.run("diff", "show").stdout.endswith("has no open finding.\n")


def is_behind(company: Company) -> None:
    company.change()
    company.migration.ask("UPDATE tripstore.queue SET at = at - interval '7 s'")


def has_parked_a_change(company: Company) -> None:
    """A foreign process put another body under the next version."""
    company.past()
    cell = company.base()
    with company.migration.datastore() as datastore:
        datastore.as_copier().put_cell(cell.row_key, "BASE", cell.ref_key + 1, {"status": "foreign"})
    company.change()
    company.migration.shell.call("mirror", "drain")


def has_a_wrong_entry(company: Company) -> None:
    company.past()
    company.migration.run("index", "verify", "legacy_ids")
    for file in (company.migration.shell.folder / "data").rglob("*.db"):
        with closing(sqlite3.connect(file, timeout=20)) as connection, connection:
            if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'index_legacy_ids_v1'").fetchone():
                connection.execute("DELETE FROM index_legacy_ids_v1")
    company.migration.run("index", "verify", "legacy_ids", code=1)


def changes(company: Company) -> None:
    """What services do all the time."""
    company.change()
    company.migration.wait_until_mirrored()


def has_copied_all(company: Company) -> None:
    company.migration.run("backfill", "start")


def reads(company: Company) -> None:
    company.migration.compare_reads(times=10)


def has_a_switcher_that_was_killed(company: Company) -> None:
    """The row is closing, and the process that closed it is no more."""
    failpoints = company.migration.shell.folder / "failpoints"
    failpoints.mkdir(exist_ok=True)
    (failpoints / switch.SHUT.name).write_text("kill")
    forced = ("cutover", "switch", "--force", "--why", "a test", "--yes")
    company.migration.shell.run(*forced, environment={ENVIRONMENT_VARIABLE: str(failpoints)})


def has_lost_a_disk(company: Company) -> None:
    folder = company.migration.shell.folder / "data"
    folder.rename(folder.with_name("unmounted"))


def mounts_it_again(company: Company) -> None:
    folder = company.migration.shell.folder / "data"
    if not folder.exists():
        folder.with_name("unmounted").rename(folder)


def has_notes_with_uuids_of_their_own(company: Company) -> None:
    """As a restore leaves them that fires no trigger."""
    company.migration.ask("INSERT INTO trip_notes (trip_id, n, text) VALUES (1, 1, 'a')")
    company.migration.ask("ALTER TABLE trip_notes DISABLE TRIGGER USER")
    company.migration.ask("UPDATE trip_notes SET trip_uuid = gen_random_uuid()")


def maps_them_as_doctor_says(company: Company) -> None:
    complaints = company.migration.shell.call("doctor", "--json").document["legacy"]["complaints"]
    parents = [found for each in complaints for found in re.findall(r"parent: ({[^}]+})", each["hint"])]
    if parents:
        file = company.migration.shell.folder / "layout.yaml"
        layout = yaml.safe_load(file.read_text())
        notes = layout["columns"].pop("NOTES") | {"parent": yaml.safe_load(parents[0])}
        notes["fields"]["trip_uuid"] = {"type": "uuid"}
        file.write_text(yaml.safe_dump(layout | {"columns": layout["columns"] | {"KEYED_NOTES": notes}}))


def has_a_writer_that_does_not_commit(company: Company) -> None:
    held = company.enter(company.migration.connection(autocommit=False))
    held.cursor().execute(WRITE)
    wait_until_it_counts(company)


def has_a_prepared_transaction(company: Company) -> None:
    company.migration.ask(f"BEGIN; {WRITE}; PREPARE TRANSACTION 'the clerk''s payroll'")


def wait_until_it_counts(company: Company) -> None:
    wait_until("a second has passed", lambda: not company.gate("writers")["is_passed"], seconds=10)


def has_a_session_of_another_layout(company: Company) -> None:
    held = company.enter(company.migration.connection())
    held.cursor().execute("SET application_name = 'tripstore, layout 0123456789abcdef'")


def restarts_it(company: Company) -> None:
    company.leave()


def has_parked_a_cell(company: Company) -> None:
    """Another body came into the mirror: the rehearsal of the way back compares it."""
    company.past()
    cell = company.base()
    with company.migration.datastore() as datastore:
        datastore.as_copier().put_cell(cell.row_key, "BASE", cell.ref_key + 1, {"status": "foreign"})
    wait_until("it is parked", lambda: not company.gate("parked cells")["is_passed"])


def has_purged_a_row_of_a_service(company: Company) -> None:
    """Schemaless takes none of its cells any more, and Postgres has it still."""
    with company.migration.datastore() as datastore:
        purge(datastore, company.migration.row_keys()[-1])


def deletes_it_in_postgres(company: Company) -> None:
    with company.migration.datastore() as datastore:
        for row_keys in datastore.purges.whole_rows():
            company.migration.ask(
                "DELETE FROM trips WHERE trip_uuid = ANY (%s::uuid[])", [str(key) for key in row_keys]
            )


def reads_what_differs(company: Company) -> None:
    company.past()
    right = company.base()
    with company.migration.datastore() as datastore:
        spoil(datastore, right, b'{"status":"foreign"}')
    company.migration.compare_reads(times=1)


FRESH = in_short(
    [
        Case("phase", is_off, nothing),
        Case("servers", has_lost_a_disk, mounts_it_again),
        Case("capture", breaks_capture, nothing),
        Case("backfill", nothing, nothing),
        Case("backfill", has_a_backfill_of_a_part, nothing),
        Case("backfill", has_a_backfill_that_waits, nothing),
        Case("backfill", has_a_backfill_that_was_given_up, nothing),
        Case("backfill", has_a_conflict_in_quarantine, nothing),
        Case("backfill", has_a_backfill_from_before_capture, nothing),
        Case("mirror lag", is_behind, nothing),
        Case("rehearsal", nothing, changes),
        Case("index legacy_ids", nothing, nothing),
        Case("comparisons", has_copied_all, reads),
        Case("purged rows", has_purged_a_row_of_a_service, deletes_it_in_postgres),
        Case("row keys", has_notes_with_uuids_of_their_own, maps_them_as_doctor_says),
    ]
)
SERVED = in_short(
    [
        Case("authority", has_a_switcher_that_was_killed, nothing),
        Case("layouts", has_a_session_of_another_layout, restarts_it),
        Case("diff", has_a_diff_from_before_the_backfill, nothing),
        Case("diff", differs, nothing),
        Case("diff", differed_in_the_past_and_was_repaired_by_its_key_file, nothing),
        Case("parked changes", has_parked_a_change, nothing),
        Case("parked cells", has_parked_a_cell, nothing),
        Case("index legacy_ids", has_a_wrong_entry, nothing),
        Case("comparisons of get_cell_latest", reads_what_differs, reads),
        Case("writers", has_a_writer_that_does_not_commit, nothing),
        Case("writers", has_a_prepared_transaction, nothing),
    ]
)


@pytest.mark.parametrize("case", FRESH, ids=str)
def test_what_a_gate_advises_leads_out(company: Company, case: Case) -> None:
    company.obey(case)


@pytest.mark.parametrize("case", SERVED, ids=str)
def test_what_a_gate_advises_leads_out_of_what_has_gone_wrong(served: Company, case: Case) -> None:
    served.obey(case)
