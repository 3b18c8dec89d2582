"""Which server leads each cluster, as the control database has it: for processes that cannot ask that server."""

from __future__ import annotations

from schemaless_core.cell.canonical import Json
from schemaless_core.control.database import ControlDatabase
from schemaless_core.control.documents import Documents
from schemaless_core.engine.primacy import Lead

#: The documents of promotions, one for each cluster.
PREFIX = "promotion/"


class Leaders:
    """The newest promotion of each cluster that decided on a server."""

    def __init__(self, control: ControlDatabase) -> None:
        self._documents = Documents(control)

    def find_all(self) -> dict[str, tuple[Lead, bool]]:
        """By cluster: who leads, and whether that server takes writes only under a lease."""
        found = {each.name.removeprefix(PREFIX): leader_of(each.body) for each in self._documents.all(PREFIX)}
        return {name: (leader, is_leased) for name, (leader, is_leased) in found.items() if leader is not None}


def leader_of(body: dict[str, Json]) -> tuple[Lead | None, bool]:
    """Whom a promotion's document has leading, by this promotion or the one before, and whether under a lease.

    None: no promotion has decided.
    """
    match body.get("leads"):
        case [int(number), int(server)]:
            return Lead(number, server), body.get("leads_leased") is True
    return None, False
