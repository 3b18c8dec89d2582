"""Questions before a change that a person may regret."""

from __future__ import annotations

import sys

import click

from tripstore.errors import TripstoreError

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


class Refused(TripstoreError):
    """The answer was no, or there was nobody to ask. Nothing was changed."""


def ask(question: str, *, is_answered: bool) -> None:
    """Go on only when somebody says yes; without a terminal there is nobody."""
    if is_answered:
        return
    if not sys.stdin.isatty():
        raise Refused("There is no terminal to ask at, so nothing was changed.", hint=f"{question} Then say --yes.")
    if not click.confirm(question, err=True):
        raise Refused("Nothing was changed.")
