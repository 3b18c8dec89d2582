"""Every call of a datastore is counted and timed by operation and outcome; writes, repeats and breakers too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from prometheus_client import REGISTRY

from schemaless_core import (
    BatchFailed,
    CellKey,
    ColumnKey,
    Datastore,
    NodeUnavailable,
    SchemalessError,
    ShardStatus,
    StaleEpoch,
)
from schemaless_core.config import parse_config
from schemaless_core.servers.clusters import Cluster
from tests.factories import make_cell

ROW = UUID(int=1)


def open_datastore(folder: Path) -> Datastore:
    return Datastore.open({"datastore": "trips", "shards": 2, "clusters": {"a": {"primary": f"sqlite:///{folder}"}}})


@pytest.fixture
def datastore(tmp_path: Path) -> Iterator[Datastore]:
    with open_datastore(tmp_path) as opened:
        opened.create_schema()
        yield opened


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


@contextmanager
def one_more(name: str, by: float = 1.0, **labels: str) -> Iterator[None]:
    """The block adds exactly so much to one sample."""
    before = value(name, **labels)
    yield
    assert value(name, **labels) == before + by


CALLS: dict[str, Callable[[Datastore], object]] = {
    "put_cell": lambda store: store.put_cell(uuid4(), "BASE", 1, "body"),
    "put_cells": lambda store: store.put_cells([make_cell(), make_cell()]),
    "append_cell": lambda store: store.append_cell(uuid4(), "BASE", "body"),
    "get_cell": lambda store: store.get_cell(ROW, "BASE", 1),
    "get_cell_latest": lambda store: store.get_cell_latest(ROW, "BASE"),
    "get_cells": lambda store: store.get_cells([CellKey(ROW, "BASE", 1)]),
    "get_cells_latest": lambda store: store.get_cells_latest([ColumnKey(ROW, "BASE")]),
    "get_row": lambda store: store.get_row(ROW),
    "get_history": lambda store: store.get_history(ROW, "BASE"),
    "get_cells_for_shard": lambda store: store.get_cells_for_shard(0, 0, 10),
    "get_cells_for_shards": lambda store: store.get_cells_for_shards({0: 0, 1: 0}, 10),
    "scan_rows": lambda store: store.scan_rows(0),
    "checksum": lambda store: store.checksum(0),
}

INVALID: dict[str, Callable[[Datastore], object]] = {
    "put_cell": lambda store: store.put_cell(ROW, "", 1, "body"),
    "put_cells": lambda store: store.put_cells([make_cell(body=float("nan"))]),
    "append_cell": lambda store: store.append_cell(ROW, "", "body"),
    "get_cell": lambda store: store.get_cell(ROW, "", 1),
    "get_cell_latest": lambda store: store.get_cell_latest(ROW, ""),
    "get_cells": lambda store: store.get_cells([CellKey(ROW, "", 1)]),
    "get_cells_latest": lambda store: store.get_cells_latest([ColumnKey(ROW, "")]),
    "get_row": lambda store: store.get_row(ROW, [""]),
    "get_history": lambda store: store.get_history(ROW, ""),
    "query_index": lambda store: store.query_index("by_driver", 1),
    "get_cells_for_shard": lambda store: store.get_cells_for_shard(2, 0, 10),
    "get_cells_for_shards": lambda store: store.get_cells_for_shards({2: 0}, 10),
    "scan_rows": lambda store: store.scan_rows(2),
    "checksum": lambda store: store.checksum(2),
}


@pytest.mark.parametrize("operation", CALLS)
def test_a_call_that_is_answered_is_counted_once(datastore: Datastore, operation: str) -> None:
    with one_more("schemaless_call_seconds_count", operation=operation, outcome="ok"):
        CALLS[operation](datastore)


@pytest.mark.parametrize("operation", INVALID)
def test_a_call_that_is_wrong_is_counted_as_invalid(datastore: Datastore, operation: str) -> None:
    with one_more("schemaless_call_seconds_count", operation=operation, outcome="invalid"):  # noqa: SIM117  # the counter outside, the refusal inside
        with pytest.raises(SchemalessError):
            INVALID[operation](datastore)


def test_conflicts_are_outcomes_of_their_own(datastore: Datastore) -> None:
    datastore.put_cell(ROW, "BASE", 1, "mine")

    with one_more("schemaless_call_seconds_count", operation="put_cell", outcome="conflict"):  # noqa: SIM117  # the counter outside, the refusal inside
        with pytest.raises(SchemalessError):
            datastore.put_cell(ROW, "BASE", 1, "theirs")
    with one_more("schemaless_call_seconds_count", operation="put_cells", outcome="batch_failed"):  # noqa: SIM117  # the counter outside, the refusal inside
        with pytest.raises(BatchFailed):
            datastore.put_cells([make_cell(ROW, body="theirs")])


def test_a_shard_that_refuses_is_an_outcome_of_its_own(tmp_path: Path) -> None:
    with open_datastore(tmp_path) as datastore:
        datastore.create_schema(status=ShardStatus.COPY)

        with one_more("schemaless_call_seconds_count", operation="put_cell", outcome="stale_epoch"):  # noqa: SIM117  # the counter outside, the refusal inside
            with one_more("schemaless_repeats_total", cause="stale_epoch"), pytest.raises(StaleEpoch):
                datastore.put_cell(ROW, "BASE", 1, "body")


def test_the_duration_of_a_call_is_added_up(datastore: Datastore) -> None:
    labels = {"operation": "get_cell", "outcome": "ok"}
    before = value("schemaless_call_seconds_sum", **labels)

    datastore.get_cell(ROW, "BASE", 1)

    assert 0 < value("schemaless_call_seconds_sum", **labels) - before < 5


@pytest.mark.parametrize(("status", "count"), [("created", 2), ("exists", 1), ("failed", 1)])
def test_cells_are_counted_by_what_became_of_them(datastore: Datastore, status: str, count: int) -> None:
    datastore.put_cell(ROW, "BASE", 1, "mine")

    with one_more("schemaless_cells_total", count, status=status), pytest.raises(BatchFailed):
        datastore.put_cells([make_cell(ROW, body="mine"), make_cell(ROW, body="theirs"), make_cell(), make_cell()])


def test_created_shards_are_counted(tmp_path: Path) -> None:
    with open_datastore(tmp_path) as datastore, one_more("schemaless_shards_created_total", 2):
        datastore.create_schema()
        datastore.create_schema()


def test_an_open_breaker_shows_until_its_server_answers(tmp_path: Path) -> None:
    config = parse_config(
        {
            "datastore": "trips",
            "shards": 1,
            "clusters": {"a": {"primary": f"sqlite:///{tmp_path}"}},
            "breaker": {"failures": 2, "pause_seconds": 1e-6},
        },
        tmp_path,
    )
    guarded = Cluster(config.clusters[0], config).primary
    name = guarded.node.name

    def fail(node: object) -> None:
        raise NodeUnavailable(name, "it is down")

    with one_more("schemaless_node_failures_total", 2, node=name):
        with pytest.raises(NodeUnavailable):
            guarded.ask(fail)
        assert value("schemaless_breaker_open", node=name, calls="reads") == 0
        with pytest.raises(NodeUnavailable):
            guarded.ask(fail)

    assert value("schemaless_breaker_open", node=name, calls="reads") == 1
    guarded.ask(lambda node: None)
    assert value("schemaless_breaker_open", node=name, calls="reads") == 0


def test_a_server_that_refuses_has_answered(tmp_path: Path) -> None:
    """A probe that meets a stale epoch must close the breaker: the server is there."""
    config = parse_config(
        {
            "datastore": "trips",
            "shards": 1,
            "clusters": {"a": {"primary": f"sqlite:///{tmp_path}"}},
            "breaker": {"failures": 1, "pause_seconds": 1e-6, "pause_seconds_max": 1e-6},
        },
        tmp_path,
    )
    guarded = Cluster(config.clusters[0], config).primary

    def fail(node: object) -> None:
        raise NodeUnavailable("a", "it is down")

    def refuse(node: object) -> None:
        raise StaleEpoch(0, "MOVED", "it has moved")

    with pytest.raises(NodeUnavailable):
        guarded.ask(fail)
    with pytest.raises(StaleEpoch):
        guarded.ask(refuse)

    assert guarded.reads.state.value == "closed"
