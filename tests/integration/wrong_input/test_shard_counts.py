"""A configuration that does not fit what was created."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from schemaless_core import (
    CellKey,
    ColumnKey,
    ControlUnavailable,
    Datastore,
    InvalidConfig,
    SchemaMissing,
    Unavailable,
)
from tests.factories import make_cell
from tests.integration.written import Written
from tests.integration.wrong_input.refusing import ROW, Call, Config, everything_refuses, nowhere, refused
from tests.stores import Stores


@pytest.fixture(scope="session")
def created(stores: Stores) -> Callable[[str], Config]:
    """The configuration of a datastore of four shards with one cell in each of many rows; one per engine."""
    made: dict[str, Config] = {}

    def make(engine: str) -> Config:
        if engine not in made:
            made[engine] = stores.config(engine, shards=4)
            with Datastore.open(made[engine]) as datastore:
                datastore.create_schema()
                datastore.put_cells([make_cell() for _ in range(20)])
        return copy.deepcopy(made[engine])

    return make


@pytest.mark.parametrize("shards", [2, 8])
def test_another_number_of_shards_than_created_is_refused(
    datastore_engine: str, created: Callable[[str], Config], shards: int
) -> None:
    config = created(datastore_engine) | {"shards": shards}

    everything_refuses(config, InvalidConfig, f"shards: is {shards}", "created with 4", "Write shards: 4.")


@pytest.mark.parametrize("shards", [2, 8])
def test_another_number_of_shards_is_refused_by_the_servers_when_the_control_database_is_gone(
    datastore_engine: str, created: Callable[[str], Config], shards: int
) -> None:
    config = created(datastore_engine) | {"shards": shards, "control": nowhere()}
    written = Written(config)
    before = written.now(), written.cells()

    with Datastore.open(config) as datastore:
        with refused(InvalidConfig, "created with 4", config=config):
            datastore.get_cell_latest(ROW, "BASE")
        with refused(InvalidConfig, "created with 4", config=config):
            datastore.put_cell(ROW, "BASE", 1, "body")
    with Datastore.open(config) as datastore, refused(ControlUnavailable, "control database", config=config):
        datastore.create_schema()

    assert (written.now(), written.cells()) == before


@pytest.mark.parametrize("shards", [2, 8])
def test_another_number_of_shards_is_refused_by_the_servers_when_the_control_database_is_another(
    datastore_engine: str, created: Callable[[str], Config], shards: int, tmp_path: Path
) -> None:
    config = created(datastore_engine) | {"shards": shards, "control": f"sqlite:///{tmp_path}/new"}

    everything_refuses(config, InvalidConfig, f"shards: is {shards}", "created with 4", "Write shards: 4.")

    assert not (tmp_path / "new").exists()


CALLS: dict[str, Call] = {
    "get_cell": lambda store: store.get_cell(ROW, "BASE", 1),
    "get_cell_latest": lambda store: store.get_cell_latest(ROW, "BASE"),
    "get_cells": lambda store: store.get_cells([CellKey(ROW, "BASE", 1)]),
    "get_cells_latest": lambda store: store.get_cells_latest([ColumnKey(ROW, "BASE")]),
    "get_row": lambda store: store.get_row(ROW),
    "get_history": lambda store: store.get_history(ROW, "BASE"),
    "get_cells_for_shard": lambda store: store.get_cells_for_shard(0, 0, 1),
    "get_cells_for_shards": lambda store: store.get_cells_for_shards({0: 0, 1: datetime.now(UTC)}, 1),
    "scan_rows": lambda store: store.scan_rows(0),
    "checksum": lambda store: store.checksum(0),
    "put_cell": lambda store: store.put_cell(ROW, "BASE", 1, "body"),
    "put_cells": lambda store: store.put_cells([make_cell()]),
    "append_cell": lambda store: store.append_cell(ROW, "BASE", "body"),
}


@pytest.mark.parametrize("verb", CALLS)
def test_a_call_before_the_schema_was_created_says_how_to_create_it(
    datastore_engine: str, stores: Stores, verb: str
) -> None:
    config = stores.config(datastore_engine)
    written = Written(config)

    with Datastore.open(config) as datastore, refused(SchemaMissing, "schema apply", config=config):
        CALLS[verb](datastore)

    assert written.now() == []


def test_a_look_into_an_existing_folder_makes_no_file(stores: Stores) -> None:
    config = stores.config("sqlite")
    for cluster in config["clusters"].values():
        Path(cluster["primary"].removeprefix("sqlite:///")).mkdir(parents=True)

    with Datastore.open(config) as datastore, refused(SchemaMissing, "schema apply"):
        datastore.get_cell(ROW, "BASE", 1)
    with Datastore.open(config) as datastore:
        assert not datastore.schema.plan().is_done

    assert Written(config).now() == []


def test_a_configuration_without_a_cluster_that_holds_shards_is_refused(
    datastore_engine: str, created: Callable[[str], Config]
) -> None:
    config = created(datastore_engine)
    written = Written(copy.deepcopy(config))
    del config["clusters"]["b"]

    everything_refuses(config, InvalidConfig, "lacks 'b', which holds shards 2 to 3", "Add b:", written=written)


def test_without_that_cluster_and_the_control_database_its_shards_are_unavailable_and_the_others_are_not(
    datastore_engine: str, created: Callable[[str], Config]
) -> None:
    config = created(datastore_engine) | {"control": nowhere()}
    del config["clusters"]["b"]

    with Datastore.open(config) as datastore:
        assert datastore.get_cells_for_shard(0, 0, 1).position.epoch == 1
        with refused(Unavailable, "shard 3", "cluster", config=config):
            datastore.get_cells_for_shard(3, 0, 1)
