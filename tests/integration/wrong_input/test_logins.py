"""Configurations and logins that are wrong: told, not shown, and nothing written."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from urllib.parse import urlsplit

import pytest

from schemaless_core import (
    Datastore,
    InvalidConfig,
    InvalidServer,
)
from tests.integration.written import Written
from tests.integration.wrong_input.refusing import Config, everything_refuses, refused
from tests.stores import ServerEngine, Stores


def with_password(url: str, password: str) -> str:
    return url.replace(f":{urlsplit(url).password}@", f":{password}@")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"shard": 8}, ["shard", "Did you mean shards?"]),
        ({"clusters": {"a": {"primary": "mysql://u:S3cr3t@h:port"}}}, ["clusters.a.primary", "mysql://"]),
        ({"clusters": {"a": {"primary": "postgresql://u:S3cr3t@h:5432"}}}, ["clusters.a.primary", "postgresql"]),
        ({"clusters": "mysql://u:S3cr3t@h"}, ["clusters", "primary"]),
        ({"control": "u:S3cr3t@h"}, ["control", "mysql://"]),
        ({"shards": 0}, ["shards", "0"]),
        ({"shards": True}, ["shards", "True"]),
        ({"datastore": "Trips!"}, ["datastore", "Trips!"]),
        ({"deadlines": {"put_seconds": "soon"}}, ["deadlines.put_seconds", "'soon'"]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, Mapping) else "",
)
def test_a_configuration_that_cannot_be_is_refused_before_anything_is_opened(
    stores: Stores, changes: Config, words: list[str]
) -> None:
    config = stores.config("sqlite") | changes

    with refused(InvalidConfig, *words, config={"password": "mysql://u:S3cr3t@h"}):
        Datastore.open(config)

    assert Written(stores.config("sqlite")).now() == []


def test_a_wrong_password_is_told_and_not_shown(server_engine: ServerEngine, stores: Stores) -> None:
    config = stores.config(server_engine)
    wrong = copy.deepcopy(config)
    wrong["clusters"]["a"]["primary"] = with_password(config["clusters"]["a"]["primary"], "wr0ng-passw0rd")

    everything_refuses(wrong, InvalidServer, "password", written=Written(config))


def test_a_wrong_password_on_the_last_server_keeps_the_first_untouched(
    server_engine: ServerEngine, stores: Stores
) -> None:
    config = stores.config(server_engine)
    wrong = copy.deepcopy(config)
    wrong["clusters"]["b"]["primary"] = with_password(config["clusters"]["b"]["primary"], "wr0ng-passw0rd")

    with Datastore.open(wrong) as datastore, refused(InvalidServer, "password or user is wrong", config=wrong):
        datastore.create_schema()

    assert Written(config).now() == []


def test_a_wrong_password_of_the_control_database_is_told(server_engine: ServerEngine, stores: Stores) -> None:
    config = stores.config(server_engine)
    config["control"] = with_password(config["clusters"]["a"]["primary"], "wr0ng-passw0rd")

    everything_refuses(config, InvalidServer, "control database", "login is refused")


def test_a_user_without_rights_is_told(server_engine: ServerEngine, stores: Stores) -> None:
    config = stores.config(server_engine)
    server = stores.clusters(server_engine)[0].primary
    server.query("CREATE USER guest@'127.0.0.1' IDENTIFIED BY 'gu3st-passw0rd'")
    guest = copy.deepcopy(config)
    guest["clusters"]["a"]["primary"] = f"mysql://guest:gu3st-passw0rd@127.0.0.1:{server.port}"

    try:
        with Datastore.open(guest) as datastore, refused(InvalidServer, "guest", config=guest):
            datastore.create_schema()
    finally:
        server.query("DROP USER guest@'127.0.0.1'")

    assert Written(config).now() == []
