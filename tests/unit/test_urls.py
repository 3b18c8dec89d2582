"""Node URLs: their parts, their complaints, and that a password never shows."""

from __future__ import annotations

import pickle
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemaless_core import InvalidConfig
from schemaless_core.urls import NodeUrl, parse_node_url, shown_setting

SECRET = "S3cr3t"


def test_a_url_has_host_port_user_and_password() -> None:
    url = parse_node_url("control", "mysql://writer:S3cr3t@db.example:3307/audit")

    assert (url.engine, url.host, url.port, url.user, url.password, url.database) == (
        "mysql", "db.example", 3307, "writer", SECRET, "audit",
    )  # fmt: skip


def test_the_port_is_3306_unless_given_and_mariadb_is_mysql() -> None:
    url = parse_node_url("control", "mariadb://writer@db.example")

    assert (url.engine, url.port, url.password) == ("mysql", 3306, "")


def test_a_host_may_be_an_ipv6_address() -> None:
    assert parse_node_url("control", "mysql://u:p@[::1]:33").host == "::1"


@pytest.mark.parametrize(("text", "folder"), [("sqlite:///data/a", "data/a"), ("sqlite:////var/lib/a", "/var/lib/a")])
def test_a_sqlite_url_names_a_folder(text: str, folder: str) -> None:
    assert parse_node_url("control", text) == NodeUrl(engine="sqlite", folder=folder)


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20))
def test_a_quoted_password_is_read_back_whatever_its_characters(password: str) -> None:
    url = parse_node_url("control", f"mysql://u:{quote(password, safe='')}@h:1")

    assert (url.user, url.password, url.host, url.port) == ("u", password, "h", 1)


def test_a_password_shows_neither_in_str_nor_in_repr() -> None:
    url = parse_node_url("control", f"mysql://writer:{SECRET}@db.example:3307")

    assert str(url) == "mysql://writer@db.example:3307"
    assert SECRET not in repr(url)
    assert pickle.loads(pickle.dumps(url)).password == SECRET  # it is hidden, not lost


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is no node URL"),
        ("db.example:3306", "is no node URL"),
        (3306, "is no node URL"),
        (None, "is no node URL"),
        ([f"mysql://u:{SECRET}@h"], "is no node URL"),
        ({"url": f"mysql://u:{SECRET}@h"}, "is no node URL"),
        (f"u:{SECRET}@h:1", "is no node URL"),
        (f"postgresql://u:{SECRET}@h:5432", "has the scheme 'postgresql'"),
        (f"http://u:{SECRET}@h", "has the scheme 'http'"),
        (f"mysql://u:{SECRET}@h:port", "is no URL"),
        (f"mysql://u:{SECRET}@h:70000", "is no URL"),
        (f"mysql://u:{SECRET}@h:0", "has the port 0"),
        (f"mysql://u:{SECRET}@[::1:1", "is no URL"),
        (f"mysql://u:{SECRET}", "is no URL"),
        (f"mysql://u:{SECRET}#x@h:1", "is no URL"),
        (f"mysql://u:{SECRET}/x@h:1", "is no URL"),
        (f"mysql://u:{SECRET}?x@h:1", "is no URL"),
        ("mysql://h:3306", "lacks the user"),
        (f"mysql://u:{SECRET}@:3306", "lacks the host"),
        (f"mysql://u:{SECRET}@h:1?ssl=on", "carries options"),
        (f"mysql://u@h:1?password={SECRET}", "carries options"),
        (f"mysql://h?password={SECRET}", "lacks the user"),
        (f"mysql://u:x@h:1#{SECRET}", "carries options"),
        ("sqlite://", "names no folder"),
        ("sqlite:///", "names no folder"),
        ("sqlite://folder", "names no folder"),
    ],
)
def test_a_complaint_names_key_value_and_fix_and_no_password(text: object, complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint) as refused:
        parse_node_url("clusters.a.primary", text)

    assert refused.value.key == "clusters.a.primary"
    assert "clusters.a.primary" in str(refused.value)
    assert refused.value.hint
    assert SECRET not in str(refused.value)
    assert SECRET not in repr(refused.value)
    assert refused.value.__cause__ is None  # a traceback would show what the parser says


def test_a_setting_is_shown_as_it_is_when_it_holds_no_password() -> None:
    assert [shown_setting(value) for value in (5, "mysql://h:3306", "trips", ["a"], {"a": 1})] == [
        "5", "'mysql://h:3306'", "'trips'", "a list", "a mapping",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("mysql://app:S3cr3t@db1:3306 - mysql://app:S3cr3t@db2", "'mysql://…@db2'"),
        ("S3cr3t mysql://app:S3cr3t@db1", "'…@db1'"),
        ("mysql://app:a://S3cr3t@db1", "'mysql://…@db1'"),
    ],
)
def test_of_several_urls_in_one_text_no_password_is_shown(text: str, shown: str) -> None:
    """Found by the fuzz: all but the last URL of a text were shown as they are."""
    assert shown_setting(text) == shown
