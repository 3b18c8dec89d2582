"""What advice and hints tell people to type exists, for every kind of job."""

from __future__ import annotations

import shlex
from typing import get_args

import click
import pytest

from schemaless_core.control.jobs.commands import Verb, job_command, kind_of
from tripstore.cli.root import root

VERBS: tuple[Verb, ...] = get_args(Verb)


def parsed(line: str) -> click.Context:
    """The command line as click understands it; nothing is run."""
    name, *arguments = shlex.split(line)
    assert name == "tripstore"
    command: click.Command = root
    context = root.make_context(name, [arguments[0]])
    while isinstance(command, click.Group):
        found = command.get_command(context, arguments[0])
        assert found is not None, line
        context = click.Context(found, parent=context)
        command, arguments = found, arguments[1:]
    return command.make_context(command.name, arguments, parent=context)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", ["backfill", "diff", "fsck", "move", "repair"])
def test_each_command_for_a_job_is_one_that_there_is(kind: str, verb: Verb) -> None:
    job = "" if verb == "start" else f"{kind}-1"

    context = parsed(job_command(kind, verb, job))

    assert not job or job in context.params.values()


def test_a_verb_that_there_is_not_is_found_out() -> None:
    """The control: what status once advised of a repair."""
    with pytest.raises(click.UsageError):
        parsed("tripstore repair resume repair-1")


def test_the_kind_of_a_job_stands_in_its_id() -> None:
    assert [kind_of(each) for each in ("repair-5f0a7c1e", "a-kind-5f0a7c1e")] == ["repair", "a-kind"]
    assert job_command("diff", "show", "a b") == "tripstore diff show 'a b'"
