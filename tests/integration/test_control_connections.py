"""The connection to the control database: one is kept, and whatever became of it meanwhile, the next call works."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from schemaless_core import ControlUnavailable
from schemaless_core.config import parse_config
from schemaless_core.control.database import PING_SECONDS, ControlDatabase
from tests.stores import ServerEngine, Stores

CONNECT_SECONDS = 1.0


@pytest.fixture
def control(server_engine: ServerEngine, stores: Stores) -> Iterator[ControlDatabase]:
    config = parse_config(stores.config(server_engine), Path())
    with closing(ControlDatabase(config.control, config.datastore, config.tls, CONNECT_SECONDS)) as opened:
        opened.migrate()
        yield opened


def connection_id(control: ControlDatabase) -> int:
    with control.begin() as connection:
        return int(connection.execute(sa.text("SELECT CONNECTION_ID()")).scalar_one())


def test_calls_share_a_connection_that_is_kept(control: ControlDatabase) -> None:
    assert len({connection_id(control) for _ in range(5)}) == 1


def test_calls_at_the_same_time_have_their_own(control: ControlDatabase) -> None:
    with control.begin() as connection:
        outer = connection.execute(sa.text("SELECT CONNECTION_ID()")).scalar_one()
        assert connection_id(control) != outer


def test_one_that_the_server_has_closed_is_replaced(control: ControlDatabase) -> None:
    known = connection_id(control)
    with closing(_another(control)) as apart, apart.begin() as killer:
        killer.execute(sa.text("KILL :id"), {"id": known})

    assert connection_id(control) != known


def test_a_server_that_stands_still_is_given_up_soon_and_found_again(
    control: ControlDatabase, server_engine: ServerEngine, stores: Stores
) -> None:
    primary = stores.clusters(server_engine)[0].primary
    connection_id(control)
    primary.pause()
    try:
        began = time.monotonic()
        with pytest.raises(ControlUnavailable):
            connection_id(control)
        assert time.monotonic() - began < 2 * CONNECT_SECONDS + PING_SECONDS
    finally:
        primary.resume()

    assert connection_id(control) > 0


def test_a_child_has_a_connection_of_its_own(control: ControlDatabase) -> None:
    known = connection_id(control)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, str(connection_id(control)).encode())
        os._exit(0)
    os.close(writing)
    assert os.waitpid(child, 0)[1] == 0
    with os.fdopen(reading) as told:
        childs = int(told.read())

    assert childs not in (known, connection_id(control))


def test_the_connection_that_has_migrated_keeps_no_other_from_migrating(control: ControlDatabase) -> None:
    with closing(_another(control)) as other:
        other.migrate()
        assert other.version() == control.version()


def _another(control: ControlDatabase) -> ControlDatabase:
    return ControlDatabase(control._url, control._database.removesuffix("_control"), control._tls, CONNECT_SECONDS)
