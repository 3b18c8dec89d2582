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

    def find_all(self) -> dict[str, Lead]:
        return {
            document.name.removeprefix(PREFIX): leader
            for document in self._documents.all(PREFIX)
            if (leader := leader_of(document.body)) is not None
        }


def leader_of(body: dict[str, Json]) -> Lead | None:
    """Whom a promotion's document has leading, by this promotion or the one before; None: none has decided."""
    leads = body.get("leads")
    match leads:
        case [int(number), int(server)]:
            return Lead(number, server)
    return None
