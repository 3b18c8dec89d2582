"""The doctor's findings: what refuses, what only advises, and what was not compared is never called fine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from schemaless_core import ControlUnavailable, Datastore, NodeUnavailable
from schemaless_core.deadline import Deadline
from schemaless_core.engine.base import Fact, Node
from schemaless_core.engine.documents import StoredDocument
from schemaless_core.servers.doctor import Doctor, ServerFinding, ServerRole


class FakeNode:
    """A server of two shards that says of itself whatever a test wants."""

    def __init__(self, name: str, facts: list[Fact], *, shards: int = 2) -> None:
        self.name = name
        self._facts = facts
        self._shards = shards

    def shard_count(self, deadline: Deadline) -> int:
        return self._shards

    def find_documents(self, prefix: str, deadline: Deadline) -> list[StoredDocument]:
        return []

    def shards_present(self) -> set[int]:
        return {0, 1}

    def facts(self, *, is_replica: bool, shards: int, has_replicas: bool = False) -> list[Fact]:
        return self._facts

    def close(self) -> None:
        """Nothing is open."""


class SilentNode(FakeNode):
    """A server that does not answer."""

    def shard_count(self, deadline: Deadline) -> int:
        raise NodeUnavailable(self.name, "it did not answer within the deadline")


class SilentControl:
    """A control database that cannot be reached."""

    name = "control database"

    def version(self) -> str:
        raise ControlUnavailable("It cannot be reached.", hint="Start it.")


FORGETFUL = Fact("sync_binlog", "0", False, True, "SET GLOBAL sync_binlog = 1.")


def examined(folder: Path, primary: FakeNode, replica: FakeNode, control: object | None = None) -> list[ServerFinding]:
    """The findings about one cluster whose servers are fakes; the control database is real unless given."""
    url = f"sqlite:///{folder}"
    clusters: Mapping[str, Any] = {"a": {"primary": f"{url}/a", "replicas": [f"{url}/r"]}}
    with Datastore.open({"datastore": "trips", "shards": 2, "clusters": clusters, "control": url}) as datastore:
        datastore.create_schema()
        datastore.clusters["a"].primary.node = cast(Node, primary)
        datastore.clusters["a"].replicas[0].node = cast(Node, replica)
        doctor = Doctor(datastore.config, datastore.clusters, cast(Any, control or datastore.control))
        return doctor.findings()


def troubles(findings: list[ServerFinding]) -> list[tuple[ServerRole, str, bool]]:
    assert all(finding.fact.advice for finding in findings if not finding.fact.is_fine)
    return [(found.role, found.fact.name, found.fact.is_refusal) for found in findings if not found.fact.is_fine]


def test_a_forgetful_primary_refuses_and_a_forgetful_replica_only_gets_an_advice(tmp_path: Path) -> None:
    findings = examined(tmp_path, FakeNode("p", [FORGETFUL]), FakeNode("r", [FORGETFUL]))

    assert troubles(findings) == [(ServerRole.PRIMARY, "sync_binlog", True), (ServerRole.REPLICA, "sync_binlog", False)]


def test_a_server_that_does_not_answer_is_a_finding_beside_those_of_the_others(tmp_path: Path) -> None:
    findings = examined(tmp_path, SilentNode("p", []), FakeNode("r", []))

    assert troubles(findings) == [(ServerRole.PRIMARY, "reachable", True)]
    assert [found.fact.value for found in findings if found.role is ServerRole.REPLICA][-1] == "2 of 2"


def test_without_the_control_database_shards_are_not_called_complete(tmp_path: Path) -> None:
    findings = examined(tmp_path, FakeNode("p", []), FakeNode("r", []), SilentControl())

    assert troubles(findings) == [
        (ServerRole.CONTROL, "reachable", True),
        (ServerRole.PRIMARY, "shards", False),
        (ServerRole.REPLICA, "shards", False),
    ]
    assert "not compared" in findings[-1].fact.value


def test_a_server_that_was_created_for_another_number_of_shards_is_refused(tmp_path: Path) -> None:
    findings = examined(tmp_path, FakeNode("p", [], shards=64), FakeNode("r", []))

    assert troubles(findings) == [(ServerRole.PRIMARY, "shards", True)]
    assert "shards: 64" in next(found.fact.advice for found in findings if not found.fact.is_fine)
