"""The control database goes back to a backup, as the runbook advises: what indexes became since then holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
import sqlalchemy as sa

from schemaless_core import Datastore, InvalidServer
from schemaless_core.control.tables import document
from schemaless_core.engine.mysql.indexes import tables as index_tables
from schemaless_core.engine.sqlite import entries as sqlite_entries
from schemaless_core.indexes.catalogue import Catalogue
from schemaless_core.servers.doctor import Doctor
from tests.indexing import catch_up
from tests.integration.test_index_versions import NAME, SHARDS, definition, put_trip, rows, with_definition
from tests.stores import Stores


@pytest.fixture
def config(datastore_engine: str, stores: Stores) -> dict[str, Any]:
    return stores.config(datastore_engine, shards=SHARDS, indexes=[definition()])


@pytest.fixture
def runs_on(config: dict[str, Any]) -> Iterator[Datastore]:
    """A process that was there before the restore, and stays."""
    with Datastore.open(config) as store:
        store.create_schema()
        yield store


def backup(store: Datastore) -> list[dict[str, Any]]:
    with store.control.begin() as connection:
        return [dict(row) for row in connection.execute(sa.select(document)).mappings()]


def restore(store: Datastore, rows_then: list[dict[str, Any]]) -> None:
    with store.control.begin() as connection:
        connection.execute(sa.delete(document))
        connection.execute(sa.insert(document), rows_then)


def second_version(config: dict[str, Any], *more: str) -> int:
    with with_definition(config, *more) as store:
        number = store.indexes.create(NAME)
        catch_up(store)
        assert store.indexes.verify(NAME, number).verified.is_clean
        store.indexes.promote(NAME, number)
        return number


def catalogue_findings(store: Datastore) -> list[str]:
    found = Doctor(store.config, store.clusters, store.control).findings()
    return [finding.fact.value for finding in found if finding.fact.name == "catalogue"]


def test_what_indexes_became_since_the_backup_holds_and_no_number_is_used_again(
    config: dict[str, Any], runs_on: Datastore
) -> None:
    then = backup(runs_on)
    row_key = put_trip(runs_on, city="Aarhus")
    assert second_version(config, "city") == 2
    assert catalogue_findings(runs_on) == []
    restore(runs_on, then)

    with with_definition(config, "city") as begun:
        assert len(catalogue_findings(begun)) >= 2, "each server's copy is later"

        begun.create_schema()

        assert catalogue_findings(begun) == []
        assert begun.indexes.catalogue.indexes()[NAME].alias == 2
        assert rows(begun, consistency="verified") == [row_key]
    runs_on.indexes.catalogue.refresh()
    assert runs_on.indexes.catalogue.indexes()[NAME].alias == 2

    restore(runs_on, then)  # and a change without `schema apply` in between
    assert second_version(config, "city", "rider") == 3
    runs_on.indexes.catalogue.refresh()
    assert runs_on.indexes.catalogue.indexes()[NAME].alias == 3
    assert rows(runs_on, consistency="verified") == [row_key]
    assert catalogue_findings(runs_on) == []


def test_control_who_believes_the_restored_database_uses_a_number_again(
    config: dict[str, Any], runs_on: Datastore
) -> None:
    then = backup(runs_on)
    assert second_version(config, "city") == 2
    restore(runs_on, then)

    with (
        patch.object(Catalogue, "_ask_servers", lambda _catalogue, _patience: 0),
        patch.object(index_tables, "check_columns", lambda *_arguments, **_options: None),
        patch.object(sqlite_entries, "check_columns", lambda *_arguments: None),
        with_definition(config, "rider") as begun,
    ):
        assert begun.indexes.create(NAME) == 2


def test_a_table_of_another_definition_is_refused_by_name_and_left_by_the_next_number(
    config: dict[str, Any], runs_on: Datastore
) -> None:
    """Where no server that answers has a later copy either. Without the look the maintainer fails at it for ever."""
    then = backup(runs_on)
    assert second_version(config, "city") == 2
    restore(runs_on, then)

    with (
        patch.object(Catalogue, "_ask_servers", lambda _catalogue, _patience: 0),
        with_definition(config, "rider") as begun,
    ):
        with pytest.raises(InvalidServer, match=r"exists, with other columns than version 2 of index") as refused:
            begun.indexes.create(NAME)
        assert f"tripstore index drop {NAME} --version 2" in str(refused.value.hint)

        begun.indexes.drop(NAME, 2)

        assert begun.indexes.create(NAME) == 3
        row_key = put_trip(begun, rider="Ada")
        catch_up(begun)
        assert begun.indexes.verify(NAME, 3).verified.is_clean
        begun.indexes.promote(NAME, 3)
        assert rows(begun, consistency="verified") == [row_key]


def test_control_a_table_that_is_there_as_it_should_be_is_finished(config: dict[str, Any], runs_on: Datastore) -> None:
    then = backup(runs_on)
    assert second_version(config, "city") == 2
    restore(runs_on, then)

    with (
        patch.object(Catalogue, "_ask_servers", lambda _catalogue, _patience: 0),
        with_definition(config, "city") as begun,
    ):
        assert begun.indexes.create(NAME) == 2
