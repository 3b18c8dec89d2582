"""Questions before a change that a person may regret."""

from __future__ import annotations

import sys

import click

from tripstore.errors import TripstoreError

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


class AnswerRefused(TripstoreError):
    """The answer was no, or there was no terminal to ask at. Nothing was changed."""


def ask(question: str, *, is_answered: bool) -> None:
    """Go on only when the operator says yes; without a terminal raise `AnswerRefused`."""
    if is_answered:
        return
    if not sys.stdin.isatty():
        raise AnswerRefused(
            "There is no terminal to ask at, so nothing was changed.", hint=f"{question} Then say --yes."
        )
    if not click.confirm(question, err=True):
        raise AnswerRefused("Nothing was changed.")
