"""Keys of the configuration that the environment sets: over those of the file, strictly, and never shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tripstore
from schemaless_core.config import load_document
from schemaless_core.environment import with_settings
from schemaless_core.errors import InvalidConfig
from tripstore.cli.root import root
from tripstore.config import load_config

FILE = "datastore: trips\nshards: 4\nclusters: {a: {primary: 'sqlite:///a'}}\n"
SECRET = "s3cret-pa55"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tripstore.yaml").write_text(FILE)
    return tmp_path


def setting(monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(f"TRIPSTORE_SET__{name}", value)


def test_a_variable_sets_one_key_over_the_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting(monkeypatch, POOL__SIZE="3", DEADLINES__PUT_SECONDS="0.4", SHARDS="8")
    config = load_config(folder / "tripstore.yaml").core
    assert (config.shards, config.pool.size, config.deadlines.put_seconds) == (8, 3, 0.4)
    assert config.deadlines.read_seconds == 1.0
    assert config.datastore == "trips"


def test_a_variable_may_refer_to_another_and_hold_a_list(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "a/b@c")
    setting(monkeypatch, CLUSTERS__A__PRIMARY="mysql://app:${DB_PASSWORD}@db1:3306")
    setting(monkeypatch, CLUSTERS__A__REPLICAS="['mysql://app:x@db2', 'mysql://app:x@db3']")
    (cluster,) = load_config(folder / "tripstore.yaml").core.clusters
    assert (cluster.primary.host, cluster.primary.password) == ("db1", "a/b@c")
    assert [replica.host for replica in cluster.replicas] == ["db2", "db3"]


def test_a_mapping_in_code_is_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting(monkeypatch, SHARDS="8")
    given = {"datastore": "trips", "shards": 2, "clusters": {"a": {"primary": "sqlite:///a"}}}
    assert load_config(given).core.shards == 2
    assert load_config(folder / "tripstore.yaml").core.shards == 8  # control


def test_connect_finds_the_file_as_the_command_does(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tripstore.connect() as store:
        assert store.facade.config.core.shards == 4
    (folder / "other.yaml").write_text(FILE.replace("4", "2"))
    monkeypatch.setenv("TRIPSTORE_CONFIG", "other.yaml")
    with tripstore.connect() as store:
        assert store.facade.config.core.shards == 2


def test_without_a_file_the_environment_is_the_configuration(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "tripstore.yaml").unlink()
    setting(monkeypatch, DATASTORE="trips", SHARDS="2", CLUSTERS="{a: {primary: 'sqlite:///a'}}")
    with tripstore.connect() as store:
        assert store.facade.config.core.shards == 2
    ran = CliRunner().invoke(root, ["schema", "apply", "--json"], catch_exceptions=False)
    assert (ran.exit_code, '"shards": 2' in ran.stdout.replace('":2', '": 2')) == (0, True), ran.output
    with pytest.raises(InvalidConfig, match="cannot be read"):
        load_document(folder / "named.yaml")  # control: one that is named must be there
    monkeypatch.delenv("TRIPSTORE_SET__SHARDS")
    with pytest.raises(InvalidConfig, match="shards: is missing"):
        load_config(None)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("TRIPSTORE_SET__SHADOW", "{}", "shadow: is about two stores"),
        ("TRIPSTORE_SET__DEADLINES__PUT_SECOND", "1", "Did you mean deadlines.put_seconds"),
        ("TRIPSTORE_SET__SHARDZ", "1", "Did you mean shards"),
        ("TRIPSTORE_SET_SHARDS", "1", "TRIPSTORE_SET_SHARDS: is no setting"),
        ("TRIPSTORE_SET__shards", "1", "TRIPSTORE_SET__shards: is no setting"),
        ("tripstore_set__SHARDS", "1", "tripstore_set__SHARDS: is no setting"),
        ("TRIPSTORE_SET__", "1", "is no setting"),
        ("TRIPSTORE_SET__POOL____SIZE", "1", "is no setting"),
        ("TRIPSTORE_SET__SHARDS", " ", "TRIPSTORE_SET__SHARDS: is empty"),
        ("TRIPSTORE_SET__SHARDS", "{" + SECRET, "TRIPSTORE_SET__SHARDS: is no YAML"),
        ("TRIPSTORE_SET__SHARDS", f"{{a: {SECRET}, a: {SECRET}}}", "twice"),
        ("TRIPSTORE_SET__SHARDS", SECRET, "shards"),
        ("TRIPSTORE_SET__DATASTORE", SECRET.upper(), "is no datastore name"),
        ("TRIPSTORE_SET__DATASTORE__NAME", "x", "sets a key of datastore, which is no mapping"),
        ("TRIPSTORE_SET__CLUSTERS__A__PRIMARY", f"mysql://app:{SECRET}@db:x", "clusters.a.primary"),
        ("TRIPSTORE_SET__CLUSTERS__A__PRIMARY", f"[{SECRET}]", "clusters.a.primary"),
        ("TRIPSTORE_SET__TLS__CA", SECRET, "is no file"),
        ("TRIPSTORE_SET__SHARDS", "x" * 20_000, "longer than"),
    ],
)
def test_what_is_wrong_is_refused_by_its_name_and_never_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidConfig) as refused:
        load_config(folder / "tripstore.yaml")
    complaint = f"{refused.value} {refused.value.hint}"
    assert said in complaint
    assert SECRET not in complaint
    assert SECRET.upper() not in complaint


def test_a_key_is_not_set_as_a_whole_and_in_part() -> None:
    both = {"TRIPSTORE_SET__POOL": "{}", "TRIPSTORE_SET__POOL__SIZE": "3"}
    with pytest.raises(InvalidConfig, match="TRIPSTORE_SET__POOL: sets what TRIPSTORE_SET__POOL__SIZE sets"):
        with_settings({}, both)


def test_the_files_own_mappings_are_left_alone() -> None:
    document: dict[str, Any] = {"pool": {"size": 1}}
    assert with_settings(document, {"TRIPSTORE_SET__POOL__SIZE": "3"}) == {"pool": {"size": 3}}
    assert document == {"pool": {"size": 1}}
