"""The configuration is checked in full when it is read; every complaint names the key, the value and a fix."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from schemaless_core import Datastore, InvalidConfig
from schemaless_core.breaker import BreakerConfig
from schemaless_core.config import DatastoreConfig, DeadlineConfig, load_document, parse_config

SECRET = "S3cr3t"
A = {"primary": f"mysql://u:{SECRET}@a:3306"}
BY_DRIVER = {
    "table": "by_driver",
    "column_defs": [{"column_key": "BASE", "fields": [{"field": "who", "type": "UUID"}]}],
}


def document(**changes: Any) -> dict[str, Any]:
    return {"datastore": "trips", "shards": 64, "clusters": {"a": A}} | changes


def parsed(folder: Path = Path("/srv"), /, **changes: Any) -> DatastoreConfig:
    return parse_config(document(**changes), folder)


def complaint(folder: Path = Path("/srv"), /, **changes: Any) -> InvalidConfig:
    with pytest.raises(InvalidConfig) as refused:
        parsed(folder, **changes)
    error = refused.value
    assert error.hint
    assert error.key in str(error)
    assert SECRET not in str(error) + repr(error)
    return error


def test_three_keys_are_enough() -> None:
    config = parsed()

    assert (config.datastore, config.shards, [cluster.name for cluster in config.clusters]) == ("trips", 64, ["a"])
    assert config.control == config.clusters[0].primary
    assert (config.max_body_bytes, config.deadlines.put_seconds, config.tls.ca) == (4 * 1024 * 1024, 0.25, None)


def test_a_configuration_shows_no_password() -> None:
    config = parsed(control=f"mysql://u:{SECRET}@c:1")

    assert SECRET not in repr(config)
    assert config.control.password == SECRET


@pytest.mark.parametrize("key", ["datastore", "shards", "clusters"])
def test_a_missing_key_is_named(key: str) -> None:
    incomplete = document()
    del incomplete[key]

    with pytest.raises(InvalidConfig, match="is missing") as refused:
        parse_config(incomplete, Path("/srv"))

    assert refused.value.key == key
    assert refused.value.hint


@pytest.mark.parametrize(
    ("changes", "key", "hint"),
    [
        ({"shard": 64}, "shard", "Did you mean shards?"),
        ({"contol": "x"}, "contol", "Did you mean control?"),
        ({"clusters": {"a": A | {"replica": []}}}, "clusters.a.replica", "Did you mean clusters.a.replicas?"),
        ({"deadlines": {"put_second": 1}}, "deadlines.put_second", "Did you mean deadlines.put_seconds?"),
        ({"pool": {"zzz": 1}}, "pool.zzz", "Known keys: size, overflow, reads."),
        ({"tls": {"keys": "x"}}, "tls.keys", "Did you mean tls.key?"),
        ({7: 1}, "7", "Known keys: datastore, shards, clusters"),
    ],
)
def test_an_unknown_key_is_named_with_the_one_that_was_meant(changes: Any, key: str, hint: str) -> None:
    with pytest.raises(InvalidConfig, match="is no known key") as refused:
        parse_config(document() | changes, Path("/srv"))

    assert refused.value.key == key
    assert hint in str(refused.value)


def test_an_unknown_key_that_is_a_url_shows_no_password() -> None:
    error = complaint(clusters={"a": A | {f"mysql://u:{SECRET}@h": None}})

    assert "is no known key" in str(error)


@pytest.mark.parametrize("name", ["", "Trips", "1trips", "trips-2", "t" * 41, "trips`", 5, None, True])
def test_a_datastore_name_that_cannot_be_a_database_is_refused(name: object) -> None:
    error = complaint(datastore=name)

    assert error.key == "datastore"
    assert repr(name) in str(error)


@pytest.mark.parametrize("shards", [0, -1, 65537, "64", 64.0, True, None, 10**5_000], ids=lambda value: type(value))
def test_a_number_of_shards_that_is_no_count_is_refused(shards: object) -> None:
    assert complaint(shards=shards).key == "shards"


@pytest.mark.parametrize("size", [0, 16 * 1024 * 1024, "4M", 1.5])
def test_a_body_size_that_no_column_holds_is_refused(size: object) -> None:
    assert complaint(max_body_bytes=size).key == "max_body_bytes"


@pytest.mark.parametrize(
    ("clusters", "key"),
    [
        ({}, "clusters"),
        (None, "clusters"),
        ([A], "clusters"),
        (A["primary"], "clusters"),
        ({"a": None}, "clusters.a.primary"),
        ({"a": A["primary"]}, "clusters.a.primary"),
        ({"a": {"replicas": []}}, "clusters.a.primary"),
        ({"a": {"primary": [A["primary"]]}}, "clusters.a.primary"),
        ({"a": A | {"replicas": A["primary"]}}, "clusters.a.replicas"),
        ({"a": A | {"replicas": [A["primary"], "nothing"]}}, "clusters.a.replicas[1]"),
        ({"a": {"primary": A["primary"] + "/trips"}}, "clusters.a.primary"),
        ({"-": A}, "clusters"),
        ({"x" * 33: A}, "clusters"),
        ({1: A}, "clusters"),
        ({A["primary"]: A}, "clusters"),
        ({"a": A, "b": A}, "clusters.a.primary"),
        ({"a": A, "b": {"primary": "mysql://other@a:3306"}}, "clusters.a.primary"),
    ],
)
def test_clusters_that_cannot_be_are_refused(clusters: object, key: str) -> None:
    assert complaint(clusters=clusters).key == key


@pytest.mark.parametrize(
    ("changes", "key", "value"),
    [
        ({"deadlines": {"put_seconds": 0}}, "deadlines.put_seconds", "0"),
        ({"deadlines": {"put_seconds": -1.0}}, "deadlines.put_seconds", "-1.0"),
        ({"deadlines": {"put_seconds": "250ms"}}, "deadlines.put_seconds", "'250ms'"),
        ({"deadlines": {"put_seconds": float("nan")}}, "deadlines.put_seconds", "nan"),
        ({"deadlines": {"put_seconds": float("inf")}}, "deadlines.put_seconds", "inf"),
        ({"deadlines": {"read_seconds": True}}, "deadlines.read_seconds", "True"),
        ({"deadlines": {"read_seconds": 10**5_000}}, "deadlines.read_seconds", "too long"),
        ({"deadlines": [1]}, "deadlines", "a list"),
        ({"pool": {"size": 0}}, "pool.size", "0"),
        ({"pool": {"overflow": -1}}, "pool.overflow", "-1"),
        ({"pool": {"size": "many"}}, "pool.size", "'many'"),
        ({"breaker": {"failures": 2.5}}, "breaker.failures", "2.5"),
        ({"breaker": 3}, "breaker", "3"),
        ({"tls": {"verify_hostname": "yes"}}, "tls.verify_hostname", "'yes'"),
        ({"tls": {"ca": 5}}, "tls.ca", "5"),
        ({"tls": {"ca": "/nowhere/ca.pem"}}, "tls.ca", "'/nowhere/ca.pem'"),
        ({"tls": {"cert": __file__}}, "tls.ca", "not verified"),
        ({"indexes": 5}, "indexes", "5"),
        ({"indexes": "nowhere"}, "indexes", "'/srv/nowhere' is no folder"),
        ({"indexes": ["nowhere.yaml"]}, "indexes[0]", "'/srv/nowhere.yaml' cannot be read"),
        ({"indexes": [{"table": "Trips"}]}, "indexes[0]: column_defs", "is missing"),
        ({"indexes": [BY_DRIVER | {"table": "Trips"}]}, "indexes[0]: table", "'Trips'"),
        ({"indexes": [BY_DRIVER | {"datastore": "rides"}]}, "indexes[0]: datastore", "'rides'"),
        ({"control": "trips"}, "control", "'trips'"),
        ({"control": f"postgresql://u:{SECRET}@h"}, "control", "postgresql"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(changes: Any, key: str, value: str) -> None:
    error = complaint(**changes)

    assert error.key == key
    assert value in str(error)


def test_sections_change_what_they_name_and_nothing_else() -> None:
    config = parsed(deadlines={"put_seconds": 1}, pool={"size": 3, "overflow": 0}, breaker={"failures": 9}, tls=None)

    assert config.deadlines == DeadlineConfig(put_seconds=1.0)
    assert type(config.deadlines.put_seconds) is float
    assert (config.pool.size, config.pool.overflow) == (3, 0)
    assert config.breaker == BreakerConfig(failures=9)


def test_paths_start_from_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("")
    (tmp_path / "trips.yaml").write_text(
        "{datastore: trips, shards: 2, control: 'sqlite:///control', tls: {ca: ca.pem},"
        " clusters: {a: {primary: 'sqlite:///data/a'}, b: {primary: 'sqlite:////srv/b'}}}"
    )

    config = Datastore.open(tmp_path / "trips.yaml").config

    assert [cluster.primary.folder for cluster in config.clusters] == [str(tmp_path / "data/a"), "/srv/b"]
    assert config.control.folder == str(tmp_path / "control")
    assert config.tls.ca == str(tmp_path / "ca.pem")


def test_indexes_are_read_from_a_folder_beside_the_file_or_stand_in_a_list(tmp_path: Path) -> None:
    (tmp_path / "indexes").mkdir()
    (tmp_path / "indexes" / "by_driver.yaml").write_text(yaml.safe_dump(BY_DRIVER))

    from_folder = parsed(tmp_path, indexes="indexes").indexes
    from_list = parsed(tmp_path, indexes=[BY_DRIVER]).indexes

    assert [(index.name, index.datastore, index.shard_field.name) for index in from_list] == [
        ("by_driver", "trips", "who")
    ]
    assert from_folder == from_list
    assert parsed().indexes == ()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (f"control: mysql://u:{SECRET}@h: {{\n", "is no YAML at line 1"),
        ("shards: 2026-13-45\n", "is no YAML"),
        (f"password: !{SECRET} x\n", "is no YAML at line 1"),
        ("", "holds no mapping"),
        ("- a\n", "holds no mapping"),
    ],
)
def test_a_file_that_is_no_configuration_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "trips.yaml"
    file.write_text(text)

    with pytest.raises(InvalidConfig, match=complaint) as refused:
        load_document(file)

    assert refused.value.key == str(file)
    assert refused.value.hint
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.yaml", tmp_path):
        with pytest.raises(InvalidConfig, match="cannot be read") as refused:
            load_document(path)
        assert refused.value.key == str(path)
        assert refused.value.hint

    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidConfig, match="is no YAML"):
        load_document(tmp_path / "binary.yaml")


# ---------------------------------------------------------------------------------------- ${NAME} and ${file:path}


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20))
def test_a_password_from_the_environment_may_hold_any_character(password: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRIPS_PASSWORD", password)
        config = parsed(clusters={"a": {"primary": "mysql://u:${TRIPS_PASSWORD}@a:3306"}})

    primary = config.clusters[0].primary
    assert (primary.user, primary.password, primary.host) == ("u", password, "a")


def test_a_password_from_a_file_loses_only_the_line_end(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("p@ss/w:rd#?%41\n")

    config = parsed(tmp_path, clusters={"a": {"primary": "mysql://u:${file:secret}@a:3306"}})

    assert config.clusters[0].primary.password == "p@ss/w:rd#?%41"


def test_references_stand_anywhere_in_the_document(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRIPS_HOST", "b")
    monkeypatch.setenv("TRIPS_URL", f"mysql://u:{SECRET}@c:1")
    monkeypatch.setenv("TRIPS_DATA", str(tmp_path))

    config = parsed(
        control="${TRIPS_URL}",
        clusters={
            "a": A | {"replicas": ["mysql://u@${TRIPS_HOST}:2"]},
            "b": {"primary": "sqlite:///${TRIPS_DATA}/b"},
        },
    )

    assert (config.control.host, config.control.password) == ("c", SECRET)
    assert config.clusters[0].replicas[0].host == "b"
    assert config.clusters[1].primary.folder == f"{tmp_path}/b"


def test_a_reference_to_nothing_is_named_with_a_way_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TRIPS_PASSWORD", raising=False)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")

    unset = complaint(control="mysql://u:${TRIPS_PASSWORD}@c:1")
    missing = complaint(tmp_path, control="mysql://u:${file:nowhere}@c:1")
    binary = complaint(tmp_path, control="mysql://u:${file:binary}@c:1")

    assert (unset.key, missing.key) == ("${TRIPS_PASSWORD}", "${file:nowhere}")
    assert "export TRIPS_PASSWORD=" in str(unset)
    assert "No such file" in str(missing)
    assert "no text" in str(binary)


@pytest.mark.parametrize(
    ("changes", "environment"),
    [
        ({"datastore": "${PW}"}, True),
        ({"shards": "${PW}"}, True),
        ({"clusters": {"a": {"primary": "${PW}"}}}, True),
        ({"clusters": {"a": {"primary": "host=db1 user=app password=S3cr3t"}}}, False),
        ({"control": "host=db1 password = 'S3cr3t' dbname=x"}, False),
        ({"deadlines": {"put_seconds": "mysql://u:S3cr3t@h"}}, False),
        ({"shards": "mysql://u:S3cr3t@h"}, False),
        ({"deadlines": {"put_seconds": "${PW}"}}, True),
        ({"tls": {"ca": ["${PW}"]}}, True),
        ({"pool": {"size": "password=S3cr3t"}}, False),
    ],
)
def test_what_may_be_a_password_is_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch, changes: Any, environment: bool
) -> None:
    monkeypatch.setenv("PW", "S3cr3t")

    with pytest.raises(InvalidConfig) as refused:
        parsed(**changes)

    told = f"{refused.value!s} {refused.value!r} {refused.value.hint}"
    assert "S3cr3t" not in told
    # The control: a text that cannot be one is shown, since that helps.
    if not environment:
        with pytest.raises(InvalidConfig, match="'a few'"):
            parsed(shards="a few")


def test_a_hostname_is_verified_under_an_authority_or_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="is true, and there is no tls") as refused:
        parsed(tls={"verify_hostname": True})
    assert refused.value.key == "tls.verify_hostname"

    (tmp_path / "ca.pem").write_text("")
    assert parsed(tmp_path, tls={"verify_hostname": True, "ca": "ca.pem"}).tls.verify_hostname
    assert parsed(tls={}).tls.ca is None


BOMB = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("shards: 2\nshards: 4\n", "names 'shards' twice at line 2, column 1"),
        ("pool: {size: 1, size: 2}\n", "names 'size' twice at line 1"),
        (BOMB, "stands for more than 100,000 values at line"),
        ("a: &a [*a]\n", "holds itself at line 1"),
        ("a: " + "[" * 3000 + "]" * 3000, "is nested deeper than 50 levels at line 1"),
        ("shards: " + "9" * 5000, "is no YAML"),
        ('datastore: "a\\0b"\n', "a text of 3 characters has a NUL"),
        ('datastore: "\\ud800"\n', "half a surrogate"),
        ("datastore: " + "x" * 10_001, "is longer than 10,000"),
    ],
)
def test_a_file_that_yaml_takes_and_no_person_meant_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "trips.yaml"
    file.write_text(text)

    with pytest.raises(InvalidConfig, match=complaint):
        load_document(file)


def test_control_the_librarys_own_loader_takes_them() -> None:
    assert yaml.safe_load("shards: 2\nshards: 4\n") == {"shards": 4}
    assert yaml.safe_load("a: &a [*a]\n")["a"][0][0]


def test_a_file_is_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    file = tmp_path / "trips.yaml"
    file.write_bytes("datastore: äöü\n".encode())
    read = "from schemaless_core.config import load_document; import sys; print(ascii(load_document(sys.argv[1])[0]))"
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

    done = subprocess.run(
        [sys.executable, "-c", read, str(file)], capture_output=True, text=True, check=True, env=environment
    )

    assert done.stdout.strip() == ascii({"datastore": "äöü"})
