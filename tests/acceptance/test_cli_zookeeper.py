"""The commands where ZooKeeper holds the leases: run, look, examine, and what they say when it is down."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from schemaless_core import Datastore, PutStatus
from tests.acceptance.conftest import Shell
from tests.acceptance.test_cli_triggers import MODULE, new_cells
from tests.acceptance.workers import quicken, serving
from tests.chaos.actors import wait_until
from tests.crew import Notebook, noting, working
from tests.zookeepers import another_zookeeper
from tripstore.local.servers import LocalServers
from tripstore.local.zookeeper import ZooKeeperServer


@pytest.fixture
def own(servers: LocalServers) -> Iterator[ZooKeeperServer]:
    """One that the test may stop."""
    with another_zookeeper(servers) as server:
        yield server


@pytest.fixture
def shop(store: Shell, own: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A folder with a module of triggers in it, whose leases are in ZooKeeper."""
    quicken(store)
    config = store.folder / "tripstore.yaml"
    config.write_text(f"{config.read_text()}  coordinator: {own.url}\n")
    (store.folder / "shop.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield store
    sys.modules.pop("shop", None)


def test_triggers_run_status_and_doctor_use_the_coordinator(shop: Shell, own: ZooKeeperServer) -> None:
    with Datastore.open(shop.folder / "tripstore.yaml") as datastore:
        datastore.put_cells(new_cells(20))

        with serving(shop, "shop:app", "--workers", "2"):
            wait_until("registered", lambda: datastore.triggers.coordinator.find_group("noted") is not None)
            wait_until("delivered", lambda: datastore.triggers.status("noted")[0].lag_cells == 0)
            wait_until("both serve", lambda: len({s.owner for s in datastore.triggers.status("noted")[0].shards}) == 2)

            seen = shop.call("triggers", "status", "--shards", "--json").document
            owners = {view["owner"] for group in seen["groups"] for view in group["shard_views"]}
            assert (seen["workers"], seen["coordinator"], seen["is_fine"]) == (2, own.url, True)
            assert owners == {worker for group in seen["groups"] for worker in group["workers"]}
            screen = shop.call("triggers", "status", "--shards").stdout
            assert f"2 workers are alive; leases: {own.url}" in screen
            assert all(owner in screen for owner in owners)

            facts = of_coordinator(shop, own)
            assert facts["reachable"] == ("yes", True, "")
            assert facts["leases"] == ("of 1 groups, 2 workers", True, "")

        ended = shop.call("triggers", "status")
        assert (ended.code, "no worker serves its" in ended.stdout) == (1, True)


def test_workers_that_still_use_the_control_database_are_counted_by_the_doctor(
    shop: Shell, own: ZooKeeperServer
) -> None:
    config = shop.folder / "tripstore.yaml"
    former = config.read_text().replace(f"  coordinator: {own.url}\n", "")
    (shop.folder / "former.yaml").write_text(former)
    with Datastore.open(shop.folder / "former.yaml") as datastore, working(datastore, [noting(Notebook())]):
        wait_until("it beats", lambda: bool(datastore.triggers.coordinator.survey().workers))
        value, is_fine, advice = of_coordinator(shop, own)["workers"]

    assert (value, is_fine) == ("1 use the control database instead", False)
    assert "triggers.coordinator" in advice
    assert "workers" not in of_coordinator(shop, own)


def test_without_zookeeper_commands_say_so_and_cells_are_put_all_the_same(shop: Shell, own: ZooKeeperServer) -> None:
    with Datastore.open(shop.folder / "tripstore.yaml") as datastore:
        datastore.triggers.register_group("noted", "beginning")
    own.kill()

    for command in (("triggers", "status"), ("triggers", "run", "shop:app"), ("worker", "run")):
        ran = shop.run(*command)
        assert ran.code != 0
        assert f"The coordinator {own.url} is unavailable" in ran.stderr
        assert "Start ZooKeeper, or mend triggers.coordinator." in ran.stderr
        assert "Traceback" not in ran.stderr
    value, is_fine, advice = of_coordinator(shop, own)["reachable"]
    assert (value.startswith("no connection"), is_fine) == (True, False)
    assert advice.startswith("Start ZooKeeper")
    with Datastore.open(shop.folder / "tripstore.yaml") as datastore:
        assert all(result.status is PutStatus.CREATED for result in datastore.put_cells(new_cells(3)))


def of_coordinator(shell: Shell, server: ZooKeeperServer) -> dict[str, tuple[str, bool, str]]:
    """What the doctor says of ZooKeeper: value, whether it is fine, and advice, by name."""
    found = shell.call("doctor", "--json").document["findings"]
    return {
        each["name"]: (each["value"], each["is_fine"], each["advice"])
        for each in found
        if each["role"] == "coordinator" and each["server"] == server.url
    }
