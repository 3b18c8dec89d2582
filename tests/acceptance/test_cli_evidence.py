"""`tripstore evidence`: one file that can be proven, and a log whose lines are found when they are touched."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.conftest import Shell
from tests.acceptance.migrations import Migration, copied, migration_template
from tripstore.local.servers import LocalServers
from tripstore.migration.evidence.cleaned import cleaned

FILES = {
    "audit.jsonl",
    "configuration.json",
    "jobs.jsonl",
    "ledgers.jsonl",
    "manifest.json",
    "report.html",
    "report.json",
    "versions.json",
}


@pytest.fixture
def migration(servers: LocalServers, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Migration:
    return copied(migration_template(servers, tmp_path_factory), tmp_path / "own")


def rewritten(bundle: Path, name: str, old: bytes, new: bytes) -> Path:
    """A copy in which a file says something else."""
    with zipfile.ZipFile(bundle) as read:
        files = {each: read.read(each) for each in read.namelist()}
    assert old in files[name], f"{name} does not say {old!r}"
    files[name] = files[name].replace(old, new, 1)
    other = bundle.with_name("other.zip")
    with zipfile.ZipFile(other, "w") as written:
        for each, content in files.items():
            written.writestr(each, content)
    return other


def with_fitting_manifest(bundle: Path) -> Path:
    """A copy whose report says something else, and whose manifest says so, too."""
    with zipfile.ZipFile(bundle) as read:
        files = {each: read.read(each) for each in read.namelist()}
    before = files["report.json"]
    files["report.json"] = before.replace(b'"is_allowed": false', b'"is_allowed": true')
    assert files["report.json"] != before
    old, new = (hashlib.sha256(each).hexdigest().encode() for each in (before, files["report.json"]))
    files["manifest.json"] = files["manifest.json"].replace(old, new)
    other = bundle.with_name("forged.zip")
    with zipfile.ZipFile(other, "w") as written:
        for each, content in files.items():
            written.writestr(each, content)
    return other


def test_a_bundle_has_it_all_without_a_secret_and_is_proven(migration: Migration) -> None:
    shell = migration.shell
    password = migration.url.rpartition("@")[0].rpartition(":")[2]
    made = shell.call("evidence", "-o", "bundle.zip", "--json")
    with zipfile.ZipFile(shell.folder / "bundle.zip") as bundle:
        files = {name: bundle.read(name).decode() for name in bundle.namelist()}

    assert made.code == 0, made.stderr
    assert set(files) == FILES
    assert (shell.folder / "bundle.zip").stat().st_mode & 0o077 == 0
    assert password
    assert not [name for name, content in files.items() if password in content]
    assert json.loads(files["configuration.json"])["datastore"] == "trips"
    assert "Ready to switch to Schemaless?" in files["report.html"]
    assert len(files["audit.jsonl"].splitlines()) == made.document["audit_lines"]
    assert {json.loads(line)["kind"] for line in files["jobs.jsonl"].splitlines()} <= {"backfill", "diff", "repair"}

    proven = shell.call("evidence", "verify", "bundle.zip", "--against-log", "--json")
    assert proven.code == 0, proven.stdout
    assert proven.document["faults"] == proven.document["unknown"] == proven.document["files"] == []
    assert proven.document["sha256"] == made.document["sha256"]
    newest = shell.call("status", "--json").document["control"]["audit"][0]
    assert (newest["action"], json.loads(newest["detail"])["sha256"]) == ("evidence.bundle", made.document["sha256"])


def test_what_was_done_to_a_bundle_is_named(migration: Migration) -> None:
    shell = migration.shell
    assert shell.call("evidence", "-o", "bundle.zip").code == 0
    bundle = shell.folder / "bundle.zip"

    rewritten(bundle, "audit.jsonl", b'"who":"', b'"who":"not-')
    line = shell.call("evidence", "verify", "other.zip")
    rewritten(bundle, "report.json", b'"question"', b'"answered"')
    page = shell.call("evidence", "verify", "other.zip")
    (shell.folder / "no.zip").write_bytes(bundle.read_bytes()[:400])
    damaged = shell.call("evidence", "verify", "no.zip")

    forged = shell.call("evidence", "verify", str(with_fitting_manifest(bundle)), "--against-log", "--json")

    assert line.code == page.code == damaged.code == forged.code == 1
    assert "this is not the file that was made" in forged.document["faults"][0][1]
    assert "line 1 is not as it was written" in line.stdout
    assert "audit.jsonl is not as it was written" in line.stdout
    assert "report.json is not as it was written" in page.stdout
    assert "no.zip is no bundle of evidence" in damaged.complaint


def test_the_log_of_now_is_held_against_a_bundle(store: Shell, migration: Migration) -> None:
    """Another datastore's log does not go on from it."""
    assert migration.shell.call("evidence", "-o", "bundle.zip").code == 0
    (store.folder / "bundle.zip").write_bytes((migration.shell.folder / "bundle.zip").read_bytes())

    own = store.call("evidence", "verify", "bundle.zip")
    other = store.call("evidence", "verify", "bundle.zip", "--against-log")

    assert own.code == 0
    assert other.code == 1
    assert "the log of now does not go on from the bundle" in other.stdout


def test_a_line_of_the_log_that_was_changed_is_named(store: Shell) -> None:
    fine = store.call("evidence", "verify")
    (control,) = store.folder.rglob("control.db")
    with closing(sqlite3.connect(control)) as connection, connection:
        connection.execute("UPDATE audit SET who = 'another' WHERE id = 1")
    changed = store.call("evidence", "verify", "--json")

    assert (fine.code, fine.stdout.splitlines()[-1]) == (0, "It is as it was written.")
    assert changed.code == 1
    assert changed.document["faults"] == [[1, "is not as it was written", False]]


def test_wrong_calls_say_what_to_do(store: Shell) -> None:
    nameless = store.call("evidence")
    nowhere = store.call("evidence", "verify", "nothing.zip")
    alone = store.call("evidence", "-o", "bundle.zip")

    assert nameless.code == 2
    assert "-o bundle.zip" in nameless.complaint
    assert (nowhere.code, "nothing.zip cannot be read" in nowhere.complaint) == (1, True)
    assert alone.code == 2
    assert "there is no legacy store" in alone.complaint


def test_a_configuration_is_cleaned_of_what_may_be_a_password() -> None:
    document = {
        "clusters": {"a": {"primary": "mysql://me:hunter2@db:3306"}},
        "legacy": {"postgres": "postgresql://me:p@ss:word@pg/company?password=hunter3", "layout": "layout.yaml"},
        "replication": {"user": "repl", "password": "hunter4"},
        "control": "${CONTROL_URL}",
        "shards": 16,
    }

    told = cleaned(document)

    assert not [each for each in ("hunter2", "p@ss", "hunter3", "hunter4") if each in json.dumps(told)]
    assert (told["control"], told["shards"], told["legacy"]["layout"]) == ("${CONTROL_URL}", 16, "layout.yaml")
    assert told["replication"]["user"] == "repl"
