"""Both stores, for commands that make no sense with one; and what the gates say, on a screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import click
import msgspec
from rich.console import RenderableType
from rich.text import Text

from schemaless_core.errors import InvalidConfig
from tripstore.cli.options import Settings
from tripstore.cli.tables import table
from tripstore.config import LegacyConfig
from tripstore.facade.facade import Duo, Facade
from tripstore.migration.cutover.look import Looker
from tripstore.migration.cutover.verdicts import GateVerdict

why_option = click.option("--why", default="", metavar="TEXT", help="The reason, for the audit log.")


class GateDocument(msgspec.Struct, frozen=True):
    """A verdict in a JSON document."""

    name: str
    is_passed: bool
    said: str
    wanted: str
    hint: str


@dataclass(frozen=True, slots=True)
class Both:
    """The two stores of a configuration."""

    facade: Facade
    duo: Duo
    legacy: LegacyConfig

    @property
    def looker(self) -> Looker:
        """Gathers the facts for the gates."""
        facade, duo = self.facade, self.duo
        settings = facade.config.cutover
        return Looker(self.legacy, duo.legacy, facade.store, duo.ports.control, facade.flags, settings)


@contextmanager
def both(settings: Settings) -> Iterator[Both]:
    """Open them, or say that there is only one."""
    with settings.connect() as store:
        facade = store.facade
        if facade.duo is None or facade.config.legacy is None:
            hint = "There is one store, so no phase and nothing to switch."
            raise InvalidConfig("legacy", "there is no legacy store", hint=hint)
        yield Both(facade, facade.duo, facade.config.legacy)


def gate_documents(verdicts: Sequence[GateVerdict]) -> list[GateDocument]:
    return [GateDocument(each.name, each.is_passed, each.said, each.wanted, each.hint) for each in verdicts]


def gates_screen(verdicts: Sequence[GateDocument]) -> Iterator[RenderableType]:
    """A table of verdicts, what to do below each that refuses."""
    yield table(("", "gate", "is", "wanted"), [row for verdict in verdicts for row in _rows(verdict)])


def _rows(verdict: GateDocument) -> Iterator[tuple[str | Text, ...]]:
    mark = Text("passed", style="green") if verdict.is_passed else Text("REFUSES", style="bold red")
    yield mark, verdict.name, verdict.said, verdict.wanted
    if verdict.hint:
        yield Text(), "", f"→ {verdict.hint}", ""
