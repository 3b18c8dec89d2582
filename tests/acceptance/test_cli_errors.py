"""What holds for every command: help with an example, one document, two sentences, and an exit code that means it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.acceptance.conftest import Shell
from tripstore.cli.reference import commands, reference
from tripstore.cli.root import root

ROW_KEY = "7d4bf1a0-92c5-4bf6-8d0c-8f8f3c1c9a11"
ALL = [(context.command_path, command) for command, context in commands(root, click.Context(root, None, "tripstore"))]


@pytest.mark.parametrize(("path", "command"), ALL, ids=[path for path, _ in ALL])
def test_the_help_of_every_command_has_an_example(path: str, command: click.Command) -> None:
    assert "Example" in command.get_help(click.Context(command, info_name=path))


@pytest.mark.parametrize(("path", "command"), ALL, ids=[path for path, _ in ALL])
def test_every_command_that_does_something_knows_json(path: str, command: click.Command) -> None:
    options = {option for parameter in command.params for option in parameter.opts}

    assert isinstance(command, click.Group) or "--json" in options


def test_the_reference_page_is_what_the_commands_say() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"

    assert page.read_text() == reference(), "run: python -m tripstore.cli.reference > docs/reference/cli.md"


def test_without_a_config_every_command_says_how_to_get_one(shell: Shell) -> None:
    for arguments in (("doctor",), ("status",), ("schema", "plan"), ("cell", "get", ROW_KEY, "BASE")):
        ran = shell.call(*arguments, "--json")
        assert ran.code == 2
        assert ran.document["error"]["kind"] == "InvalidConfig"
        assert "tripstore init" in ran.complaint


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("datastore: trips\nshards: 4\nclusters: {a: {primary: 'sqlite:///a'}}\nshard: 4\n", "Did you mean shards?"),
        ("datastore: trips\nshards: 4\nclusters: {a: {primary: 'mysql://u:${NOT_SET}@h'}}\n", "NOT_SET"),
        ("datastore: [\n", "YAML"),
        ("datastore: trips\nshards: 4\nclusters: {a: {primary: 'mysql://u:hidden@h:port'}}\n", "primary"),
    ],
)
def test_a_wrong_config_is_named_with_a_way_out_and_without_passwords(shell: Shell, text: str, named: str) -> None:
    (shell.folder / "tripstore.yaml").write_text(text)

    ran = shell.call("status")

    assert ran.code == 2
    assert named in ran.complaint
    assert "hidden" not in ran.complaint


def test_the_config_may_be_named_by_option_before_or_after_the_command_and_by_environment(store: Shell) -> None:
    elsewhere = Shell(store.folder.parent)
    config = str(store.folder / "tripstore.yaml")

    assert elsewhere.call("-c", config, "status").code == 0
    assert elsewhere.call("status", "--config", config).code == 0
    assert elsewhere.run("status", environment={"TRIPSTORE_CONFIG": config}).code == 0
    assert elsewhere.run("-c", config, "status", environment={"TRIPSTORE_CONFIG": "/nowhere"}).code == 0
    assert elsewhere.call("status").code == 2


def test_the_commands_that_other_packages_bring_take_the_global_options_too(shell: Shell) -> None:
    ran = shell.call("dev", "status", "--debug", "-c", "any.yaml", "--folder", "none", "--json")

    assert (ran.code, ran.document["up"]) == (1, False)


def test_reading_before_the_schema_is_there_says_what_to_run(shell: Shell) -> None:
    shell.call("init")

    ran = shell.call("cell", "get", ROW_KEY, "BASE")

    assert ran.code == 2
    assert "tripstore schema apply" in ran.complaint


def test_a_traceback_comes_with_debug_only_and_the_log_with_v_only(shell: Shell) -> None:
    quiet = shell.call("status")
    debug = shell.run("status", "--debug")
    shell.call("init", "--shards", "2")
    loud = shell.run("-v", "schema", "apply", "--json")

    assert "Traceback" not in quiet.stderr
    assert "Traceback" in debug.stderr
    assert debug.code == quiet.code == 2
    assert "event=schema.shards_created" in loud.stderr
    assert loud.document["is_complete"] is False


def test_wrong_usage_points_at_the_help_of_its_command(shell: Shell) -> None:
    assert "tripstore cell get --help" in shell.call("cell", "get").complaint
    unknown = shell.call("celt", "--json")

    assert unknown.code == 2
    assert unknown.document["error"]["kind"] == "NoSuchCommand"
    assert shell.call().code == 2
    assert shell.run("--version").stdout.startswith("tripstore, version ")


def test_a_reader_that_goes_away_is_no_error(store: Shell) -> None:
    command = f"{Path(sys.executable).with_name('tripstore')} doctor | head -n 1"

    done = subprocess.run(["sh", "-c", command], cwd=store.folder, capture_output=True, text=True, check=False)

    assert done.stdout.startswith("control database")
    assert done.stderr == ""
