"""`tripstore models`: a module from the configuration alone. No server is asked, no other file overwritten."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.conftest import Shell
from tests.layouts import document


@pytest.fixture
def company(shell: Shell) -> Shell:
    """A configuration whose servers are not there."""
    (shell.folder / "layout.yaml").write_text(json.dumps(document()))
    fields = [{"field": "driver_uuid", "type": "UUID"}]
    index = {"table": "driver_index", "column_defs": [{"column_key": "BASE", "fields": fields}]}
    config = {
        "datastore": "trips",
        "shards": 8,
        "clusters": {"a": {"primary": "mysql://u:p@127.0.0.1:1"}},
        "legacy": {"postgres": "postgresql://u@127.0.0.1:1/d", "layout": "layout.yaml"},
        "indexes": [index],
    }
    (shell.folder / "tripstore.yaml").write_text(json.dumps(config))
    return shell


def last_write(company: Shell) -> tuple[int, int]:
    """Which file the module is, and when it was written; reading it changes neither."""
    found = (company.folder / "m.py").stat()
    return found.st_ino, found.st_mtime_ns


def test_the_module_is_written_once_and_checked_until_the_layout_changes(company: Shell) -> None:
    assert company.call("models", "-o", "m.py", "--check").code == 1
    assert company.call("models", "-o", "m.py").stdout == "m.py has 4 classes.\n"
    written = last_write(company)

    assert company.call("models", "-o", "m.py").stdout == "m.py is up to date.\n"
    assert company.call("models", "-o", "m.py", "--check").code == 0
    assert last_write(company) == written

    changed = document()
    del changed["columns"]["BASE"]["fields"]["tags"]
    (company.folder / "layout.yaml").write_text(json.dumps(changed))
    refused = company.call("models", "-o", "m.py", "--check")
    assert (refused.code, refused.stdout) == (1, "m.py is not up to date: run `tripstore models -o m.py`.\n")
    assert last_write(company) == written


def test_without_a_file_the_module_is_printed(company: Shell) -> None:
    printed = company.call("models")
    company.call("models", "-o", "m.py")

    assert printed.stdout == (company.folder / "m.py").read_text()


def test_the_document_names_the_classes(company: Shell) -> None:
    told = company.call("models", "-o", "m.py", "--prefix", "Ride", "--json").document
    assert (
        "run `tripstore models -o n.py --prefix Ride`"
        in company.call("models", "-o", "n.py", "--prefix", "Ride", "--check").stdout
    )

    assert (told["file"], told["is_current"], told["is_written"]) == ("m.py", True, True)
    assert [(each["name"], each["column"], each["index"]) for each in told["classes"]] == [
        ("RideBase", "BASE", None),
        ("RideStatus", "STATUS", None),
        ("RideNotes", "NOTES", None),
        ("DriverIndex", None, "driver_index"),
    ]


def test_a_file_that_it_did_not_write_is_left_alone(company: Shell) -> None:
    own = company.folder / "own.py"
    own.write_bytes(b"\xff# my own")

    refused = company.call("models", "-o", "own.py")

    assert refused.code == 1
    assert "was not written by `tripstore models`" in refused.complaint
    assert own.read_bytes() == b"\xff# my own"


def test_a_folder_that_is_not_there_is_named(company: Shell) -> None:
    refused = company.call("models", "-o", "gone/m.py")

    assert refused.code == 1
    assert "gone/m.py cannot be written: No such file or directory." in refused.complaint


@pytest.mark.parametrize(
    ("arguments", "said"), [(("--check",), "--check needs -o"), (("--prefix", "a b"), "--prefix is to be a name")]
)
def test_a_call_that_says_too_little_is_refused(company: Shell, arguments: tuple[str, ...], said: str) -> None:
    refused = company.call("models", *arguments)

    assert refused.code == 2
    assert said in refused.complaint


def test_a_configuration_without_columns_says_what_is_missing(shell: Shell) -> None:
    assert shell.call("init", "--shards", "4").code == 0

    refused = shell.call("models")

    assert refused.code == 1
    assert "no layout and no index" in refused.complaint
    assert not list(Path(shell.folder).glob("*.py"))
