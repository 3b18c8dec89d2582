"""What the services do: one file per style, one function per unit of work."""

from tripstore.demo.legacy.actions import (
    billing,
    bulk,
    copies,
    core,
    deletes,
    isolation,
    long,
    merges,
    orm,
    quiet,
    raw,
    savepoints,
    support,
    upserts,
)
from tripstore.demo.legacy.actions.action import LegacyAction, found_actions

#: Every action by name.
ACTIONS: dict[str, LegacyAction] = found_actions()

__all__ = [
    "ACTIONS",
    "LegacyAction",
    "billing",
    "bulk",
    "copies",
    "core",
    "deletes",
    "isolation",
    "long",
    "merges",
    "orm",
    "quiet",
    "raw",
    "savepoints",
    "support",
    "upserts",
]
