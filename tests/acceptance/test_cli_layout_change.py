"""`schema apply` with another layout while a worker runs: it needs no restart, and writes no garbage (I9)."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.acceptance.migrations import Migration, copied, migration_template
from tests.chaos.actors import wait_until
from tests.layouts import document
from tripstore.handover.steps import run
from tripstore.handover.switch import switch
from tripstore.local.servers import LocalServers


@pytest.fixture
def migration(servers: LocalServers, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Migration:
    return copied(migration_template(servers, tmp_path_factory), tmp_path / "own")


def numbers(migration: Migration) -> list[int]:
    return [number for (number,) in migration.ask("SELECT attempt_no FROM billing_attempts ORDER BY 1")]


def test_i9_a_worker_begins_again_by_the_layout_that_is_put_in_force(migration: Migration) -> None:
    """Attempts to bill were facts, and become rows that change: 950 << 20 is number 950, and no number of its own."""
    (row_key, *_) = migration.row_keys()
    changed = document()
    changed["columns"]["STATUS"]["ref_key"] = {"column": "attempt_no", "version": "attempt_version"}
    migration.run("phase", "set", "dualwrite")
    with migration.worker():
        migration.ask("UPDATE trips SET driver_id = driver_id % 3 + 1")
        migration.wait_until_mirrored()
        (migration.shell.folder / "layout.yaml").write_text(yaml.safe_dump(changed))

        migration.run("schema", "apply")

        assert migration.run("schema", "plan", "--json").document["legacy"]["is_complete"]
        migration.ask("UPDATE trips SET driver_id = driver_id % 3 + 1")
        migration.wait_until_mirrored()
        with migration.store() as store:
            assert store.facade.duo is not None
            assert run(switch(store.facade.duo.ports, "test")).is_decided
            store.put_cell(row_key, "STATUS", 950 << 20, {"result": "paid"})
            wait_until("the attempt is in Postgres", lambda: bool(numbers(migration)), seconds=30)

    assert numbers(migration) == [950]
    assert "begins again: another layout is in force" in migration.said


def test_i2_plan_and_apply_refuse_another_kind_of_ref_key_for_a_column_with_cells(migration: Migration) -> None:
    migration.run("phase", "set", "dualwrite")
    migration.ask(
        "INSERT INTO billing_attempts (trip_id, trip_uuid, attempt_no, result)"
        " SELECT id, trip_uuid, 1, 'x' FROM trips LIMIT 1"
    )
    changed = document()
    changed["columns"]["STATUS"]["ref_key"] = {"column": "attempt_no", "version": "attempt_version"}
    (migration.shell.folder / "layout.yaml").write_text(yaml.safe_dump(changed))

    planned = migration.run("schema", "plan", "--json", code=1).document["legacy"]
    refused = migration.run("schema", "apply", code=2)

    (complaint,) = [each for each in planned["complaints"] if each["severity"] == "error"]
    assert complaint["where"] == "columns.STATUS.ref_key"
    assert "tripstore.queue" in complaint["reason"]
    assert "another name" in refused.complaint
    changed["columns"]["STATUS_2"] = changed["columns"].pop("STATUS")
    (migration.shell.folder / "layout.yaml").write_text(yaml.safe_dump(changed))
    migration.run("schema", "apply")


def test_each_way_out_of_that_refusal_leads_out(migration: Migration) -> None:
    """It names two: what stands there now, and another name, with all that has to be done for it."""
    folder, (row_key, *_) = migration.shell.folder, migration.row_keys()
    kept = (folder / "layout.yaml").read_text()
    migration.run("phase", "set", "dualwrite")
    migration.ask(
        "INSERT INTO billing_attempts (trip_id, trip_uuid, attempt_no, result)"
        f" SELECT id, trip_uuid, 7, 'x' FROM trips WHERE trip_uuid = '{row_key}'"
    )
    changed = document()
    changed["columns"]["STATUS"]["ref_key"] = {"column": "attempt_no", "version": "attempt_version"}
    (folder / "layout.yaml").write_text(yaml.safe_dump(changed))
    refused = migration.run("schema", "apply", code=2)
    for advice in ("another name", "`tripstore schema apply`", "`tripstore backfill start`", "`tripstore repair`"):
        assert advice in " ".join(refused.complaint.split())
    assert "Or keep what stands there now" in " ".join(refused.complaint.split())

    (folder / "layout.yaml").write_text(kept)
    migration.run("schema", "apply")
    assert migration.run("schema", "plan", "--json").document["legacy"]["is_complete"]

    changed["columns"]["STATUS_2"] = changed["columns"].pop("STATUS")
    (folder / "layout.yaml").write_text(yaml.safe_dump(changed))
    migration.run("schema", "apply")
    migration.run("mirror", "drain")
    migration.run("backfill", "start")
    # The new layout has no place for the old cells: a diff finds them, and no switch is before they are gone.
    assert "1 differences are open" in migration.run("diff", "start", "--no-indexes", code=1).stdout
    migration.run("repair", "--yes")
    migration.run("diff", "start", "--no-indexes")
    with migration.store() as store:
        (cell,) = store.facade.store.get_history(row_key, "STATUS_2")
        assert store.facade.store.get_history(row_key, "STATUS") == []
    assert (cell.ref_key >> 20, cell.body) == (7, {"result": "x"})
