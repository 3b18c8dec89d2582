"""`tripstore init`: a file to start from, for its owner's eyes only, that says what every key means."""

from __future__ import annotations

import re
import stat
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from schemaless_core.config import DatastoreConfig, TlsConfig, load_document, parse_config
from tests.acceptance.conftest import Shell
from tests.layouts import document
from tripstore.config import BackfillConfig, LegacyLimits, MirrorConfig, ShadowConfig, ThrottleConfig, load_config
from tripstore.example import ExampleCluster, render
from tripstore.thresholds import CutoverSettings


def test_init_writes_a_config_that_only_its_owner_can_read_and_says_what_comes_next(shell: Shell) -> None:
    ran = shell.run("init", "--shards", "8")

    written = shell.folder / "tripstore.yaml"
    assert ran.code == 0
    assert "tripstore schema apply" in ran.stdout
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    config = parse_config(*load_document(written))
    assert (config.datastore, config.shards, [cluster.name for cluster in config.clusters]) == ("trips", 8, ["a", "b"])


def test_init_refuses_to_overwrite_until_it_is_forced(shell: Shell) -> None:
    config = shell.folder / "tripstore.yaml"
    config.write_text("precious: true\n")

    refused = shell.call("init")

    assert refused.code == 2
    assert "tripstore.yaml" in refused.complaint
    assert "--force" in refused.complaint
    assert config.read_text() == "precious: true\n"
    assert shell.call("init", "--force").code == 0
    assert "precious" not in config.read_text()
    assert stat.S_IMODE(config.stat().st_mode) == 0o600


def test_init_takes_mysql_servers_and_keeps_references_to_passwords(shell: Shell) -> None:
    url = "mysql://app:${DB_PASSWORD}@db1:3306"
    ran = shell.call("init", "--mysql", url, "--mysql", "mysql://app:secret@db2:3306", "--datastore", "rides", "--json")

    assert ran.code == 0
    assert ran.document["clusters"] == ["a", "b"]
    assert "${DB_PASSWORD}" in ran.complaint, "the plain password of the second deserves a word"
    assert "secret" not in ran.stdout + ran.stderr
    document, _folder = load_document(shell.folder / "tripstore.yaml")
    assert document["datastore"] == "rides"
    assert document["clusters"]["a"]["primary"] == url


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--datastore", "Trips!"), "datastore"),
        (("--shards", "0"), "shards"),
        (("--mysql", "postgres://app@db1"), "postgres"),
        (("--mysql", "sqlite:///folder"), "--mysql"),
        (("--mysql", "mysql://a@db1", "--mysql", "mysql://a@db1"), "two clusters"),
        (("--sqlite", "--mysql", "mysql://a@db1"), "--sqlite"),
    ],
)
def test_init_writes_nothing_that_no_datastore_could_be_made_from(
    shell: Shell, arguments: tuple[str, ...], named: str
) -> None:
    ran = shell.call("init", *arguments)

    assert ran.code == 2
    assert named in ran.complaint
    assert list(shell.folder.iterdir()) == []


def test_the_defaults_that_the_example_shows_as_comments_are_the_defaults(tmp_path: Path) -> None:
    text = render("trips", 4, {"a": ExampleCluster("sqlite:///data/a")})
    sections = "max_body_bytes|compression|deadlines|pool|breaker|triggers|tls|legacy|mirror|prune|shadow|backfill"
    sections += "|throttle|cutover"
    shown_keys = rf"^# ((?:{sections}|  [a-z_]+):)"
    uncommented = re.sub(shown_keys, r"\1", text, flags=re.M)
    for pem in ("ca.pem", "client.pem", "client-key.pem"):
        (tmp_path / pem).touch()
    (tmp_path / "layout.yaml").write_text(yaml.safe_dump(document()))
    (tmp_path / "shown.yaml").write_text(uncommented)
    (tmp_path / "bare.yaml").write_text(text)

    everything = load_config(tmp_path / "shown.yaml")
    shown = everything.core
    bare = load_config(tmp_path / "bare.yaml").core
    unquoted = uncommented.replace('synchronous_commit: "on"', "synchronous_commit: on")
    (tmp_path / "unquoted.yaml").write_text(unquoted)

    assert unquoted != uncommented != text
    assert load_config(tmp_path / "unquoted.yaml") == everything
    for name in ("max_body_bytes", "deadlines", "pool", "breaker", "triggers"):
        assert getattr(shown, name) == getattr(bare, name)
    assert shown.tls.ca is not None
    assert bare.tls == TlsConfig()
    assert isinstance(bare, DatastoreConfig)
    assert everything.legacy is not None
    assert everything.legacy.limits == LegacyLimits()
    assert (everything.mirror, everything.shadow, everything.backfill, everything.cutover) == (
        MirrorConfig(),
        ShadowConfig(),
        BackfillConfig(),
        CutoverSettings(),
    )
    assert everything.throttle == ThrottleConfig()
    for struct in (LegacyLimits, MirrorConfig, ShadowConfig, BackfillConfig, ThrottleConfig, CutoverSettings):
        assert [field.name for field in fields(struct) if f"#   {field.name}: " not in text] == []
