"""What `backup create` and `backup restore` share: a folder, or one option for a job that was begun before."""

from __future__ import annotations

import os

import click

from tripstore.cli.jobs.running import given_verb


def check_verbs(verbs: dict[str, str | None], place: str, example: str, *, is_new: bool) -> None:
    """A folder, or one option for a job that was begun before."""
    if given_verb(verbs, is_more=is_new or bool(place)) is None and not place:
        raise click.UsageError(f"Say which folder: {example}.")


def whole_place(place: str) -> str:
    """A folder as any process of this host finds it."""
    return place if "://" in place else os.path.abspath(os.path.expanduser(place))
