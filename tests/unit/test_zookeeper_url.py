"""URLs of a ZooKeeper: their parts, their complaints, and that a password never shows."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemaless_core import InvalidConfig
from schemaless_core.config import parse_config
from schemaless_core.urls import ZooKeeperUrl, parse_zookeeper_url

SECRET = "S3cr3t"


@pytest.mark.parametrize(
    ("text", "hosts", "path"),
    [
        ("zookeeper://zk1", "zk1:2181", "/tripstore"),
        ("zookeeper://zk1:2182/", "zk1:2182", "/tripstore"),
        ("zookeeper://zk1,zk2:2182,zk-3.example/apps/rides/", "zk1:2181,zk2:2182,zk-3.example:2181", "/apps/rides"),
        ("zookeeper://[::1]:33/x", "[::1]:33", "/x"),
    ],
)
def test_a_url_has_servers_and_a_path(text: str, hosts: str, path: str) -> None:
    assert parse_zookeeper_url("triggers.coordinator", text) == ZooKeeperUrl(hosts, path)


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20))
def test_a_quoted_password_is_read_back_and_not_shown(password: str) -> None:
    url = parse_zookeeper_url("triggers.coordinator", f"zookeeper://app:{quote(password, safe='')}@zk1/x")

    assert (url.user, url.password, url.hosts) == ("app", password, "zk1:2181")
    assert str(url) == "zookeeper://app@zk1:2181/x"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (5, "is no ZooKeeper URL"),
        ("zk1:2181", "is no ZooKeeper URL"),
        ([f"zookeeper://u:{SECRET}@h"], "is no ZooKeeper URL"),
        (f"mysql://u:{SECRET}@h:1", "is no ZooKeeper URL"),
        ("zookeeper://", "has no host"),
        ("zookeeper://zk1,,zk2", "has no host"),
        ("zookeeper://zk1:0", "has no host, or a port that is none"),
        ("zookeeper://zk1:70000", "has no host, or a port that is none"),
        (f"zookeeper://zk1:{SECRET}", "has no host, or a port that is none"),
        (f"zookeeper://u:{SECRET}@", "has no host"),
        ("zookeeper://zk1//x", "has a path that is none"),
        ("zookeeper://zk1/a/../b", "has a path that is none"),
        (f"zookeeper://u:{SECRET}@zk1/a b", "has a path that is none"),
        (f"zookeeper://zk1/x?password={SECRET}", "has a path that is none"),
        ("zookeeper://u@zk1", "lacks the password"),
        (f"zookeeper://:{SECRET}@zk1", "lacks the user"),
    ],
)
def test_a_complaint_names_key_value_and_fix_and_no_password(text: object, complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint) as refused:
        parse_zookeeper_url("triggers.coordinator", text)

    assert refused.value.key == "triggers.coordinator"
    assert "zookeeper://host:2181/path" in (refused.value.hint or "")
    assert SECRET not in str(refused.value)


def test_it_stands_among_the_settings_of_triggers(tmp_path: Path) -> None:
    document = {"datastore": "t", "shards": 1, "clusters": {"a": {"primary": "sqlite:///a"}}}

    def triggers(section: object) -> object:
        return parse_config({**document, "triggers": section}, tmp_path).triggers.coordinator

    assert triggers({"coordinator": "zookeeper://zk1", "attempts": 2}) == ZooKeeperUrl("zk1:2181", "/tripstore")
    assert triggers({"coordinator": None}) is None
    assert triggers(None) is None
    with pytest.raises(InvalidConfig, match=r"triggers\.attempts"):
        triggers({"coordinator": "zookeeper://zk1", "attempts": "two"})
