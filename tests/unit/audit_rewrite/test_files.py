"""Files are written whole, as they were but for the edits, or left and named; and a second run changes nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from schemaless_core.definitions.index import IndexDefinition
from tests.legacy import layout
from tests.rewritten_service import PACKAGE, rewrite_service, write_service
from tripstore.audit.rewrite.needs import index_yaml, merged
from tripstore.audit.rewrite.patches import MARK, diff, write
from tripstore.audit.rewrite.verdicts import IndexNeed, RewriteVerdict

#: A use that is rewritten, and one that stays.
SERVICE = """
# -*- coding: latin-1 -*-
'''Bills trips: \xe9.'''
from .db import factory
from .models import Trip


def there(n):
    with factory() as session:
        return session.get(Trip, n) is None  # \xe9


def made():
    with factory() as session:
        session.add(Trip())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A service in a repository, all of it committed."""
    write_service(tmp_path, "")
    (tmp_path / PACKAGE / "service.py").write_bytes(SERVICE.lstrip().replace("\n", "\r\n").encode("latin-1"))
    for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    return tmp_path


def test_only_what_is_rewritten_changes_in_encoding_line_ends_and_rights(folder: Path) -> None:
    file = folder / PACKAGE / "service.py"
    file.chmod(0o640)

    found = rewrite_service(folder)
    assert write(folder, found.changed, allow_dirty=False) == []

    text = file.read_bytes().decode("latin-1")
    assert text.count("\r\n") == text.count("\n") > 10
    assert 'return rewritten.latest_of_id(store, n, "BASE") is None  # \xe9\r\n' in text
    assert f"        {MARK}the id and the defaults of a new row" in text
    assert f"from {PACKAGE}.stores import store\r\n" in text
    assert file.stat().st_mode & 0o777 == 0o640
    assert os.listdir(file.parent).count("service.py") == 1
    assert not [name for name in os.listdir(file.parent) if name.startswith(".")]


def test_a_second_run_finds_nothing_to_change(folder: Path) -> None:
    write(folder, rewrite_service(folder).changed, allow_dirty=False)

    again = rewrite_service(folder)

    assert again.changed == ()
    assert again.count(RewriteVerdict.REWRITTEN) == 0


def test_a_comment_goes_with_its_reason(folder: Path) -> None:
    write(folder, rewrite_service(folder).changed, allow_dirty=False)
    file = folder / PACKAGE / "service.py"
    text = file.read_bytes().decode("latin-1")
    file.write_bytes(text.replace("        session.add(Trip())\r\n", "        pass\r\n").encode("latin-1"))

    [changed] = rewrite_service(folder).changed

    assert MARK not in changed.after


@pytest.mark.parametrize("accident", ["dirty", "untracked", "changed meanwhile", "no repository"])
def test_a_file_that_cannot_be_put_back_is_left_and_named(folder: Path, accident: str) -> None:
    file = folder / PACKAGE / "service.py"
    if accident == "dirty":
        file.write_bytes(file.read_bytes() + b"\r\n# mine\r\n")
    if accident == "untracked":
        subprocess.run(["git", "-C", str(folder), "rm", "-q", "--cached", str(file)], check=True)
    if accident == "no repository":
        subprocess.run(["rm", "-rf", str(folder / ".git")], check=True)
    found = rewrite_service(folder)
    if accident == "changed meanwhile":
        file.write_bytes(file.read_bytes() + b"\r\n# mine\r\n")
    before = file.read_bytes()

    left = write(folder, found.changed, allow_dirty=accident == "changed meanwhile")

    assert [each.name for each in left] == [f"{PACKAGE}/service.py"]
    assert left[0].reason
    assert file.read_bytes() == before


def test_control_what_is_allowed_to_be_dirty_is_written(folder: Path) -> None:
    file = folder / PACKAGE / "service.py"
    file.write_bytes(file.read_bytes() + b"\r\n# mine\r\n")

    assert write(folder, rewrite_service(folder).changed, allow_dirty=True) == []
    assert b"rewritten.latest_of_id" in file.read_bytes()


def test_the_diff_can_be_applied_by_git(folder: Path) -> None:
    file = folder / PACKAGE / "service.py"
    file.write_bytes(file.read_bytes().replace(b"\r\n", b"\n").replace(b"\xe9", b"e"))
    [changed] = rewrite_service(folder).changed

    subprocess.run(["git", "-C", str(folder), "apply", "-"], input=diff(changed).encode(), check=True)

    assert file.read_text() == changed.after


def test_a_file_that_does_not_parse_is_named_and_left(folder: Path) -> None:
    (folder / PACKAGE / "old.py").write_text("print 'trips'\n")

    found = rewrite_service(folder)

    assert [each.file for each in found.unread] == [f"{PACKAGE}/old.py"]
    assert f"{PACKAGE}/old.py" not in [each.name for each in found.changed]


def test_a_name_that_means_something_else_keeps_the_file(folder: Path) -> None:
    file = folder / PACKAGE / "service.py"
    file.write_bytes(file.read_bytes() + b"\r\n\r\ndef other(store):\r\n    return store\r\n")

    found = rewrite_service(folder)

    assert found.count(RewriteVerdict.REWRITTEN) == 0
    assert any("the name store means something else" in each.reason for each in found.uses)


def need(*fields: str, equal: str, answered_by: str | None = None) -> IndexNeed:
    kinds = {"status": "string", "driver_uuid": "UUID", "fare": "decimal"}
    return IndexNeed(((equal, kinds[equal]),), tuple((name, kinds[name]) for name in fields), answered_by)


def test_needs_of_one_shard_field_are_one_index_and_what_is_answered_needs_none() -> None:
    needs = [
        need("status", equal="status"),
        need("status", "fare", equal="status"),
        need("driver_uuid", equal="driver_uuid", answered_by="driver_index"),
    ]

    [made] = merged(needs, layout(), [])

    assert [field.name for field in made.fields] == ["status", "fare"]
    assert "      - {field: status, type: string}\n" in index_yaml(made)


def test_a_proposal_takes_no_name_that_is_taken() -> None:
    there = IndexDefinition.from_document(
        {"table": "status_index", "column_defs": [{"column_key": "X", "fields": [{"field": "a", "type": "int"}]}]},
        "a test",
        "trips",
    )

    [made] = merged([need("status", equal="status")], layout(), [there])

    assert made.name != "status_index"


def test_what_would_be_no_python_is_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug of the rewrite must not reach a file: here each call that it writes lacks a bracket."""
    from tripstore.audit.rewrite.questions.calls import CallWriter, StoreCall

    monkeypatch.setattr(CallWriter, "by_keys", lambda *_given: StoreCall("rewritten.latest_of_id("))

    found = rewrite_service(folder)

    [file] = [each for each in found.changed if each.name.endswith("service.py")]
    assert "latest_of_id" not in file.after
    assert any("no Python" in each.reason for each in found.uses)
