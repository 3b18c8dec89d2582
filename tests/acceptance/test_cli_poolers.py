"""Commands whose legacy.postgres leads through a pooler, or to a standby: they work, or say what to write there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
import yaml

from tests.acceptance.conftest import Shell
from tests.facades import Migration, migration
from tests.poolers import pooler, through
from tests.standbys import Pair, pair
from tests.stores import Stores
from tripstore.local.servers import LocalServers
from tripstore.phase import Phase

KEY = "11111111-2222-3333-4444-555555555555"
#: Whatever asks Postgres.
COMMANDS = [
    *("schema plan", "schema apply", "ids status", "backfill start", "diff start", "audit db"),
    *("mirror status", "phase set shadow", "cutover switch", "cell get {key} BASE"),
]


@pytest.fixture(scope="module", params=["postgres", "postgres18"])
def moving(request: pytest.FixtureRequest, servers: LocalServers, stores: Stores) -> Iterator[Migration]:
    with migration(servers, stores, postgres=request.param, shards=2) as made:
        made.phase(Phase.DUALWRITE)
        made.legacy.sql("INSERT INTO trips (trip_uuid, distance) VALUES (%s, 1::float8 / 7)", KEY)
        made.legacy.sql("DELETE FROM tripstore.queue")  # what a backfill is for
        yield made


def configured(shell: Shell, moving: Migration, url: str) -> Shell:
    document: dict[str, Any] = dict(moving.document)
    document["legacy"] = {**document["legacy"], "postgres": url}
    (shell.folder / "tripstore.yaml").write_text(yaml.safe_dump(document))
    return shell


def words(command: str) -> list[str]:
    return command.format(key=KEY).split()


@pytest.fixture
def transactions(servers: LocalServers, shell: Shell, moving: Migration) -> Iterator[Shell]:
    service = through(pooler(servers, moving.legacy.server, "transaction", {"default_pool_size": "1"}), moving.legacy)
    yield configured(shell, moving, service.url)
    assert service.sql("SHOW search_path") == [('"$user", public',)], "a service of the pool has lost its tables"


@pytest.mark.parametrize("command", COMMANDS)
def test_behind_a_transaction_pooler_a_command_says_what_to_write(transactions: Shell, command: str) -> None:
    ran = transactions.call(*words(command))

    assert ran.code != 0
    assert "transaction mode" in ran.complaint
    assert "Connect past the pooler" in ran.complaint


def test_doctor_finds_the_transaction_pooler(transactions: Shell) -> None:
    ran = transactions.call("doctor", "--json")

    assert ran.code == 1
    (complaint,) = ran.document["legacy"]["complaints"]
    assert complaint["severity"] == "error"
    assert "transaction mode" in complaint["reason"]
    assert "poolers.md" in complaint["hint"]


def test_a_migration_goes_through_a_session_pooler(servers: LocalServers, shell: Shell, moving: Migration) -> None:
    """With a role of other settings: a backfill without ours copies 0.142857142857, and a diff finds that equal."""
    legacy = moving.legacy
    legacy.sql(f"ALTER DATABASE {legacy.name} SET extra_float_digits = -3")
    through_it = through(pooler(servers, legacy.server, "session"), legacy)
    company = configured(shell, moving, through_it.url)

    for command in ("schema plan", "schema apply", "doctor", "backfill start", "cell get {key} BASE"):
        ran = company.call(*words(command))
        assert ran.code == 0, ran.stdout + ran.stderr

    cell = moving.facade.store.get_cell_latest(UUID(KEY), "BASE")
    assert cell is not None
    assert isinstance(cell.body, dict)
    assert cell.body["distance"] == 1 / 7


@pytest.fixture(scope="module")
def followed(servers: LocalServers) -> Pair:
    return pair(servers, "machine", "commanded")


@pytest.mark.parametrize("command", COMMANDS)
def test_before_a_standby_a_command_says_what_to_write(
    shell: Shell, moving: Migration, followed: Pair, command: str
) -> None:
    ran = configured(shell, moving, followed.url).call(*words(command))

    assert ran.code != 0
    assert "Postgres is a standby" in ran.complaint
    assert "Name the primary in legacy.postgres" in ran.complaint


def test_doctor_finds_the_standby(shell: Shell, moving: Migration, followed: Pair) -> None:
    ran = configured(shell, moving, followed.url).call("doctor", "--json")

    assert ran.code == 1
    (complaint,) = ran.document["legacy"]["complaints"]
    assert complaint["severity"] == "error"
    assert "pg_is_in_recovery" in complaint["reason"]
    assert "primary" in complaint["hint"]
