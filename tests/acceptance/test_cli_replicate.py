"""`tripstore replicate`: begun, killed, gone on with, compared, promoted, taken back, and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml

from schemaless_core import Cell, Datastore
from schemaless_core.failpoints import ENVIRONMENT_VARIABLE, FailpointReached
from schemaless_core.replication.ports import StandbyState
from schemaless_core.replication.record import StandbyRecord
from tests.acceptance.conftest import Shell
from tests.backups import expire
from tests.chaos.actors import wait_until
from tests.following import begun, behind, following, promoted, wait_until_whole
from tests.fscks import row_of
from tests.repairs import failing_at
from tests.stores import ServerEngine, Stores

SHARDS = 4
SECOND = ("--config", "second.yaml")


def written(shell: Shell, name: str, config: dict[str, Any]) -> Datastore:
    (shell.folder / name).write_text(yaml.safe_dump(json.loads(json.dumps(config))))
    return Datastore.open(config)


@pytest.fixture
def store(server_engine: ServerEngine, stores: Stores, shell: Shell) -> Datastore:
    """The one that leads, with cells in each shard, and its configuration beside the shell."""
    made = written(shell, "tripstore.yaml", stores.config(server_engine, shards=SHARDS))
    made.create_schema()
    made.put_cells([Cell(row_of(made, n % SHARDS), "BASE", 1, {"fare": n}) for n in range(40)])
    return made


@pytest.fixture
def standby(server_engine: ServerEngine, stores: Stores, shell: Shell) -> Datastore:
    return written(shell, "second.yaml", stores.config(server_engine, shards=SHARDS))


def is_following(standby: Datastore) -> bool:
    return StandbyRecord(standby.control, SHARDS).find().standby.state is StandbyState.FOLLOWS


def followed_until_whole(shell: Shell, standby: Datastore, store: Datastore, *arguments: str) -> int:
    """Run it until nothing is behind, then end it as Ctrl-C does; its exit code."""
    with shell.start("replicate", "start", *arguments) as process:
        try:
            wait_until("it is whole", lambda: is_following(standby) and behind(standby, store) == 0, 60)
            process.send_signal(2)
            process.communicate(timeout=60)
        finally:
            process.kill()
    return process.returncode


def test_a_standby_follows_though_it_was_killed_and_leads(
    store: Datastore, standby: Datastore, shell: Shell, tmp_path: Path
) -> None:
    with store, standby:
        planned = shell.call("replicate", "start", "--from", "tripstore.yaml", *SECOND, "--dry-run", "--json")
        assert (planned.document["cells"], planned.document["there"], planned.document["refusals"]) == (40, 0, [])
        folder = tmp_path / "failpoints"
        folder.mkdir()
        (folder / "replicate.page_written").write_text("kill")
        environment = {ENVIRONMENT_VARIABLE: str(folder)}
        killed = shell.run("replicate", "start", "--from", "tripstore.yaml", *SECOND, environment=environment)
        expire(standby)
        interrupted = followed_until_whole(shell, standby, store, "--resume", "last", *SECOND)
        again = shell.call("replicate", "start", "--from", "tripstore.yaml", *SECOND, "--dry-run", "--json")
        status = shell.call("replicate", "status", *SECOND, "--json")
        compared = shell.call("replicate", "compare", *SECOND, "--json")

        assert (killed.code, interrupted) == (-9, 5)
        assert again.document["job"] == status.document["job"]["job"]["job"]
        assert (status.document["state"], status.document["behind"], status.document["does_other_lead"]) == (
            "follows",
            0,
            True,
        )
        assert (compared.code, compared.document["compared"], compared.document["differs"]) == (0, 40, [])

        refused = shell.call("cell", "put", "01234567-89ab-cdef-0123-456789abcdef", "BASE", "1", "{}", *SECOND)
        asked = shell.call("replicate", "promote", *SECOND)
        mistyped = shell.call("replicate", "promote", "--other-is-lost", "trips", *SECOND, "--yes")
        promoted = shell.call("replicate", "promote", *SECOND, "--yes", "--json")
        left = shell.call("replicate", "status", "--json").document
        back = followed_until_whole(shell, store, standby, "--from", "second.yaml", "--yes")

        assert (left["state"], left["taker"], left["does_other_lead"]) == (
            "left",
            status.document["job"]["job"]["job"],
            True,
        )
        assert left["other"].endswith("second.yaml")
        assert "standby" in refused.complaint
        assert "--yes" in asked.complaint
        assert mistyped.code == 2
        assert (promoted.code, promoted.document["epoch"]) == (0, 1000)
        assert (
            shell.call("replicate", "start", "--show", "last", *SECOND, "--json").document["progress"]["job"]["state"]
            == "done"
        )
        assert back == 5
        assert "follows" in shell.call("replicate", "status").stdout


@pytest.mark.parametrize(
    "command", ["schema apply", "backup create kept", "shards move 0 --to b", "fsck", "cell history {row} BASE"]
)
def test_a_command_that_needs_shards_says_that_another_datastore_leads(
    command: str, store: Datastore, standby: Datastore, shell: Shell
) -> None:
    with store, standby:
        begun(standby, store)

        ran = shell.call(*command.format(row=UUID(int=1)).split(), *SECOND)
        looks = [shell.call(look, *SECOND) for look in ("status", "doctor")]

        assert "another datastore has the lead" in ran.complaint
        assert all("another datastore leads" in look.stdout for look in looks)


def test_a_standby_of_none_and_a_datastore_that_leads_are_refused(
    store: Datastore, standby: Datastore, shell: Shell
) -> None:
    with store, standby:
        standby.create_schema()
        none = shell.call("replicate", "status", *SECOND)
        leads = shell.call("replicate", "start", "--from", "tripstore.yaml", *SECOND)
        nothing = shell.call("replicate", "start", *SECOND)
        both = shell.call("replicate", "start", "--from", "tripstore.yaml", "--resume", "last", *SECOND)

        assert "follows none" in none.complaint
        assert (leads.code, "This datastore leads" in leads.stdout) == (4, True)
        assert (nothing.code, both.code) == (2, 2)


def test_one_that_gave_the_lead_away_says_to_which_and_leads_again_where_that_is_lost(
    store: Datastore, standby: Datastore, shell: Shell
) -> None:
    name = store.config.datastore
    with store, standby:
        with following(standby, store):
            wait_until_whole(standby, store)
        with failing_at("replicate.close"), pytest.raises(FailpointReached):
            promoted(standby, store)  # no file of the standby is known to the first one

        said = shell.call("replicate", "status")
        refused = shell.call("replicate", "promote", "--yes")
        leads = shell.call("replicate", "promote", "--other-is-lost", name, "--yes", "--json")

        assert "at epoch 1000 the lead was given to replicate-" in said.stdout
        assert "is no standby" in refused.complaint
        assert (leads.code, leads.document["epoch"]) == (0, 2000)
        assert shell.call("replicate", "status", "--json").document["state"] == "leads"
