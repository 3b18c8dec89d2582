"""The acceptance walk, each process under its own login with what `schema grants` prints; and walks that lack one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemaless_core.errors import InvalidServer
from tests.acceptance.least import PASSWORD, LeastMigration
from tests.chaos.actors import wait_until
from tests.scale import SCALE
from tripstore.local.binlog import BinlogServer
from tripstore.local.postgres_programs import Flavour
from tripstore.local.servers import LocalServers
from tripstore.migration.rights.roles import LoginRole
from tripstore.phase import Phase

WRITE = """\
UPDATE trips SET status = (CASE status WHEN 'completed' THEN 'requested' ELSE 'completed' END)::trip_status
WHERE id = 1"""


#: Postgres 15 and 18 with either engine in soak; CI walks the first.
SERVERS: list[tuple[str, Flavour]] = [
    (engine, flavour) for flavour in ("machine", "wheel") for engine in ("mariadb", "mysql")
]


@pytest.fixture(scope="module")
def its() -> Iterator[LocalServers]:
    """Their logins are no other test's; they end with the file."""
    with LocalServers() as own:
        yield own


@pytest.fixture(params=SERVERS if SCALE >= 1 else SERVERS[:1], ids=lambda pair: f"{pair[0]} and the {pair[1]}'s")
def migration(
    request: pytest.FixtureRequest, servers: LocalServers, its: LocalServers, tmp_path: Path
) -> LeastMigration:
    engine, flavour = request.param
    found = [each for each in its.servers if each.name == engine and isinstance(each, BinlogServer)]
    (store,) = found or [its.mariadb(engine) if engine == "mariadb" else its.mysql(engine)]
    return LeastMigration(servers, flavour, {"a": store}, tmp_path / "own")


def test_a_whole_migration_goes_with_the_rights_that_are_printed(
    migration: LeastMigration, caplog: pytest.LogCaptureFixture
) -> None:
    """What only makes a process complain is a lack, too: no warning is logged."""
    migration.grant(Phase.OFF, LoginRole.OPERATOR)
    migration.be(LoginRole.OPERATOR)
    migration.run("schema", "apply")
    migration.grant(Phase.OFF, LoginRole.SERVICE, without='DELETE ON "public"')
    with pytest.raises(InvalidServer, match="permission denied"):  # the control: one line of the table less
        serve(migration, "in phase off")
    migration.grant(Phase.OFF)
    serve(migration, "in phase off")
    assert "may not end sessions of others" in str(examined(migration))

    migration.grant(Phase.DUALWRITE)
    assert examined(migration) == []
    newest = drop_newest_day(migration)
    migration.run("phase", "set", "dualwrite")
    with migration.acting(LoginRole.WORKER), migration.worker():
        serve(migration, "in dualwrite")
        with migration.acting(LoginRole.OPERATOR):
            migration.run("backfill", "start")
            migration.wait_until_mirrored()
            migration.run("diff", "start")
            migration.grant(Phase.SHADOW)
            migration.run("phase", "set", "shadow")
            serve(migration, "in shadow")
            for name in ("legacy_ids",):
                migration.run("index", "verify", name)
            wait_until("every gate passes", lambda: pass_all(migration), seconds=60)
        read(migration)
        with migration.acting(LoginRole.OPERATOR):
            migration.grant(Phase.LIVE)
            migration.run("cutover", "switch", "--yes", "--why", "all pass")
            serve(migration, "on live")
            migration.grant(Phase.RAMPDOWN)
            migration.run("phase", "set", "rampdown")
            serve(migration, "in rampdown")
            wait_until("the way back is open", lambda: migration.shell.call("cutover", "plan").code == 0, seconds=30)
            migration.run("cutover", "reverse", "--yes", "--why", "a rehearsal")
            migration.ask(WRITE)
            migration.wait_until_mirrored()
            migration.run("cutover", "switch", "--force", "--why", "a test", "--yes")
            read(migration)
    assert "denied" not in migration.said
    assert owners_of_days(migration)[newest] == migration.logins[LoginRole.OPERATOR]
    origins = migration.query("SELECT DISTINCT origin FROM tripstore.log")
    assert {"facade", "reverse", None} == {origin for (origin,) in origins}, "nothing of ours counts as forged"
    migration.grant(Phase.COMPLETE, LoginRole.OPERATOR)
    migration.run("cutover", "complete", "--datastore", migration.datastore_name, "--evidence", "evidence.json")
    for name in ("evidence.json", "report.html"):
        assert (migration.shell.folder / name).stat().st_mode & 0o077 == 0
    migration.grant(Phase.COMPLETE)
    migration.is_legacy = False
    serve(migration, "after the end")
    assert migration.showing_the_password() == []
    assert PASSWORD not in caplog.text
    leak = migration.shell.folder / "leak"
    leak.write_text(PASSWORD)
    assert migration.showing_the_password() == [str(leak)], "the control"
    warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [each for each in warned if not each.startswith("a hand-over")] == []


def serve(migration: LeastMigration, text: str) -> None:
    """What a service does: put, append, read, ask for ids."""
    keys = migration.row_keys()
    with migration.acting(LoginRole.SERVICE), migration.store() as store:
        latest = store.get_cell_latest(keys[0], "BASE")
        assert latest is not None
        assert isinstance(latest.body, dict)
        store.put_cell(keys[0], "BASE", latest.ref_key + 1, {**latest.body, "note": text})
        store.append_cell(keys[1], "NOTES", {"text": text})
        assert store.get_row(keys[0])["BASE"].body == {**latest.body, "note": text}
        assert store.get_history(keys[0], "BASE", limit=1)


def examined(migration: LeastMigration) -> list[str]:
    """What `doctor` says of the rights of the operator."""
    document = migration.shell.call("doctor", "--json").document
    return [each["reason"] for each in document["legacy"]["complaints"] if each["where"] == "role"]


def owners_of_days(migration: LeastMigration) -> dict[str, str]:
    found = migration.query(r"SELECT tablename, tableowner FROM pg_tables WHERE tablename ~ '^log_\d{8}$' ORDER BY 1")
    return dict(found)


def drop_newest_day(migration: LeastMigration) -> str:
    """The worker makes it again."""
    *_, newest = owners_of_days(migration)
    migration.query(f"DROP TABLE tripstore.{newest}")
    return newest


def read(migration: LeastMigration) -> None:
    """What a reader does."""
    with migration.acting(LoginRole.READER):
        migration.run("status")
        migration.run("cutover", "status")
        migration.run("phase", "show")
        migration.run("report", "--output", "report.html")


def pass_all(migration: LeastMigration) -> bool:
    migration.ask(WRITE)
    migration.wait_until_mirrored()
    (row_key, *_) = migration.row_keys()
    with migration.acting(LoginRole.SERVICE), migration.store() as store:
        for _ in range(3):
            store.get_cell_latest(row_key, "BASE")
            store.get_row(row_key)
            store.get_history(row_key, "BASE", limit=1)
        assert store.facade.duo is not None
        assert store.facade.duo.shadow.drain(10)
    return migration.shell.call("cutover", "plan").code == 0
