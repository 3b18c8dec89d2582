"""`ConsoleChanges`: what an operator may have done from the page: which actions there are, their plans, and their runs.

Each is a command in a process of its own, with the words of a shell. What the command refuses is refused here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

import msgspec

from tripstore.cli.console.actions import CHOSEN, ActionOption, ConsoleAction, Documents, actions_of
from tripstore.cli.console.runs import CommandRun, CommandRuns, RunsView
from tripstore.cli.console.stores import ConsoleStores
from tripstore.http.errors import RequestRefused

COLUMNS_MIN, COLUMNS_MAX = 32, 120


class ChangeAsked(msgspec.Struct, frozen=True):
    """What a browser sends: what was chosen and typed, and how many characters its lines have room for."""

    chosen: str = ""
    why: str = ""
    typed: str = ""
    columns: int = COLUMNS_MAX


class ShownAction(NamedTuple):
    """An action with what can be chosen now."""

    action: ConsoleAction
    options: tuple[ActionOption, ...]


class PlannedAction(NamedTuple):
    """An action, what was chosen, and the command that showed its plan, which has ended."""

    action: ConsoleAction
    chosen: str
    confirmation: str
    run: CommandRun

    @property
    def goes_on(self) -> bool:
        """Whether there is something to confirm."""
        return self.run.code in self.action.goes_on


class ConsoleChanges:
    """Of one console that was started with `--allow-changes`."""

    def __init__(self, stores: ConsoleStores, runs: CommandRuns) -> None:
        self._actions = actions_of(is_both=stores.is_both)
        self._datastore = stores.datastore_name
        self._runs = runs

    def of_section(self, section: str) -> list[ConsoleAction]:
        return [each for each in self._actions.values() if each.section == section]

    def action(self, name: str) -> ConsoleAction:
        found = self._actions.get(name)
        if found is None:
            raise RequestRefused(HTTPStatus.NOT_FOUND, "The console has no such action.", hint="Open /.")
        return found

    def shown(self, action: ConsoleAction, documents: Documents) -> ShownAction:
        return ShownAction(action, tuple(action.choice.options(documents)) if action.choice else ())

    def plan(self, action: ConsoleAction, asked: ChangeAsked, documents: Documents) -> PlannedAction:
        """Have the command say what it would do; returns when it has."""
        words = self._words(action.plan, action, asked, documents)
        run = self._runs.plan(action.name, action.title, words, _columns(asked))
        return PlannedAction(action, asked.chosen, action.confirmation(self._datastore, asked.chosen), run)

    def begin(
        self, action: ConsoleAction, asked: ChangeAsked, documents: Documents, ended: Callable[[], None]
    ) -> CommandRun:
        """Start the command, once what was typed is what it takes."""
        wanted = action.confirmation(self._datastore, asked.chosen)
        if asked.typed != wanted:
            hint = f"Type {wanted}, exactly."
            raise RequestRefused(HTTPStatus.CONFLICT, "It was not confirmed, so nothing was changed.", hint=hint)
        words = self._words(action.command, action, asked, documents)
        return self._runs.begin(action.name, action.title, words, _columns(asked), ended)

    def run(self, run_id: str) -> CommandRun:
        found = self._runs.find(run_id)
        if found is None:
            hint = "Look at the section on what was done from here."
            raise RequestRefused(HTTPStatus.NOT_FOUND, "This console knows no such command any more.", hint=hint)
        return found

    def view(self) -> RunsView:
        return self._runs.view()

    def at_work(self) -> list[str]:
        """The lines of what goes on when the console ends."""
        return [each.line for each in self._runs.at_work()]

    def _words(
        self, words: tuple[str, ...], action: ConsoleAction, asked: ChangeAsked, documents: Documents
    ) -> list[str]:
        """Of a command. Options that are chosen come last, since names stand behind `--`."""
        if any("\0" in text or not text.isprintable() for text in (asked.why, asked.typed, asked.chosen)):
            raise RequestRefused(HTTPStatus.BAD_REQUEST, "There is a character that cannot be printed.", hint="")
        chosen = self._chosen(action, asked, documents)
        why = [f"--why={asked.why}"] if action.takes_why and asked.why and words == action.command else []
        said = [each.format(typed=asked.typed) for each in words if each != CHOSEN]
        return [*said, *why, *(chosen if CHOSEN in words else ())]

    def _chosen(self, action: ConsoleAction, asked: ChangeAsked, documents: Documents) -> tuple[str, ...]:
        if action.choice is None:
            return ()
        options: Mapping[str, tuple[str, ...]] = dict(action.choice.options(documents))
        if asked.chosen not in options:
            hint = "Open it again, and choose one of those that are listed."
            raise RequestRefused(HTTPStatus.CONFLICT, "What was chosen is not there any more.", hint=hint)
        return options[asked.chosen]


def _columns(asked: ChangeAsked) -> int:
    return min(max(asked.columns, COLUMNS_MIN), COLUMNS_MAX)
