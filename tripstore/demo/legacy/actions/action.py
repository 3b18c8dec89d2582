"""`LegacyAction`: a unit of work that a service does, with what it may do to the tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tripstore.demo.legacy.turns import WorkTurn

Work = Callable[[WorkTurn], None]


@dataclass(frozen=True)
class LegacyAction:
    """One kind of work. Its name is `style.verb`."""

    name: str
    effects: frozenset[str]  #: What a commit of it does to rows, such as "insert trips".
    weight: int  #: How often it happens, compared to others.
    work: Work


_found: dict[str, LegacyAction] = {}


def action(*effects: str, weight: int = 2) -> Callable[[Work], Work]:
    """Decorator: this function is an action; its module is the style."""

    def found(work: Work) -> Work:
        name = f"{work.__module__.rpartition('.')[2]}.{work.__name__}"
        _found[name] = LegacyAction(name, frozenset(effects), weight, work)
        return work

    return found


def found_actions() -> dict[str, LegacyAction]:
    """The actions of the modules that were imported, by name."""
    return dict(sorted(_found.items()))
